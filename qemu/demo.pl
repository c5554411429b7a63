# SPDX-License-Identifier: GPL-2.0
#
# The other program that make demo profiles: perl, as the distribution built it, without frame
# pointers. It sorts files by their sizes, and each comparison reads two of them. So perl calls
# itself, and its system calls have deep callers.
my @files = map { "/proc/self/$_" } qw(smaps maps status stat limits io);

sub size
{
	my $size = 0;
	open(my $file, '<', shift) or return 0;
	$size += length while <$file>;
	return $size;
}

sub used
{
	my ($user, $system) = times;
	return $user + $system;
}

# a second on the CPU, behind what perl's start took
my $end = used() + 1;
while (used() < $end) {
	my @sorted = sort { size($a) <=> size($b) } @files;
}
