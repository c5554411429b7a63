// SPDX-License-Identifier: GPL-2.0
/*
 * A function for the Makefile: $(exit-with STATUS) ends GNU make with that exit
 * status. make's own statuses are 0, 1 and 2 only, and a command in the guest has
 * others. See "Loading Dynamic Objects" in make's manual.
 */
#include <stdlib.h>
#include <gnumake.h>

int plugin_is_GPL_compatible;

int makeexit_gmk_setup(void);

static char *exit_with(const char *name, unsigned int argc, char **argv)
{
	(void)name;
	(void)argc;
	exit(atoi(argv[0]));
}

int makeexit_gmk_setup(void)
{
	gmk_add_function("exit-with", exit_with, 1, 1, GMK_FUNC_DEFAULT);
	return 1;
}
