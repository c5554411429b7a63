// SPDX-License-Identifier: GPL-2.0
/*
 * A C++ program with threads, for tests/guest/stock. It is built without frame pointers, as
 * distributions build theirs. The system calls are made below the C++ library: a comparison
 * of std::sort(), and a destructor while an exception is on its way.
 */
#include <algorithm>
#include <stdexcept>
#include <thread>
#include <vector>
#include <unistd.h>

struct leaving {
	~leaving() { getppid(); }
};

static int __attribute__((noinline)) sort_or_throw(int depth, std::vector<int> &numbers)
{
	leaving frame;

	if (depth)
		return sort_or_throw(depth - 1, numbers) + 1;
	std::sort(numbers.begin(), numbers.end(), [](int a, int b) {
		getppid();
		return a < b;
	});
	throw std::runtime_error("sorted");
}

static void work()
{
	std::vector<int> numbers{3, 1, 2};

	try {
		sort_or_throw(10, numbers);
	} catch (const std::exception &) {
		getppid();
	}
}

int main()
{
	std::vector<std::thread> threads;

	for (int i = 0; i < 3; i++)
		threads.emplace_back(work);
	work();
	for (auto &thread : threads)
		thread.join();
	return 0;
}
