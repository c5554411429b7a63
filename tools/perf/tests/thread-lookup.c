// SPDX-License-Identifier: GPL-2.0
/*
 * Look up the threads of a machine by their tid. The table remembers the threads that
 * were found last. This must not change the result of a lookup.
 */
#include <internal/rc_check.h>
#include "debug.h"
#include "machine.h"
#include "tests.h"
#include "thread.h"
#include "threads.h"

#define PID	1

/* Does the lookup of @tid find the thread @want, or no thread if @want is NULL? */
static bool finds(struct machine *machine, pid_t tid, struct thread *want)
{
	struct thread *thread = machine__find_thread(machine, PID, tid);
	bool same = thread && want ? RC_CHK_EQUAL(thread, want) : !thread && !want;

	thread__put(thread);
	return same;
}

static int test__thread_lookup(struct test_suite *test __maybe_unused,
			       int subtest __maybe_unused)
{
	/* Both tids have the same place in the same table of last threads */
	const pid_t near = 5, far = near + THREADS__TABLE_SIZE * THREADS__LAST_MATCHES;
	struct thread *first, *second, *third;
	struct machines machines;
	struct machine *machine;

	machines__init(&machines);
	machine = &machines.host;

	first = machine__findnew_thread(machine, PID, near);
	TEST_ASSERT_VAL("first", first && finds(machine, near, first));
	TEST_ASSERT_VAL("not yet there", finds(machine, far, NULL));

	second = machine__findnew_thread(machine, PID, far);
	TEST_ASSERT_VAL("second", second && !RC_CHK_EQUAL(second, first));
	for (int i = 0; i < 2; i++) {
		TEST_ASSERT_VAL("first of two", finds(machine, near, first));
		TEST_ASSERT_VAL("first again", finds(machine, near, first));
		TEST_ASSERT_VAL("second of two", finds(machine, far, second));
	}

	/* Remove the thread that was found last, then a thread that was not */
	machine__remove_thread(machine, second);
	TEST_ASSERT_VAL("second is gone", finds(machine, far, NULL));
	TEST_ASSERT_VAL("first stays", finds(machine, near, first));
	thread__put(second);

	second = machine__findnew_thread(machine, PID, far);
	TEST_ASSERT_VAL("second came again", second && finds(machine, far, second));
	machine__remove_thread(machine, first);
	TEST_ASSERT_VAL("first is gone", finds(machine, near, NULL));
	TEST_ASSERT_VAL("second stays", finds(machine, far, second));

	/* Another thread gets the tid of a remembered thread */
	third = machine__findnew_thread(machine, PID, near);
	TEST_ASSERT_VAL("third", third && !RC_CHK_EQUAL(third, first));
	TEST_ASSERT_VAL("third is found", finds(machine, near, third));

	/* Removing a thread again removes the thread that now has its tid */
	machine__remove_thread(machine, first);
	TEST_ASSERT_VAL("third is gone", finds(machine, near, NULL));
	TEST_ASSERT_VAL("second is still there", finds(machine, far, second));

	thread__put(first);
	thread__put(second);
	thread__put(third);
	machines__exit(&machines);
	return TEST_OK;
}

DEFINE_SUITE("Threads found by their number", thread_lookup);
