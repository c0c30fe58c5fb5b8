# An animal in Perl: it reports as those in C do (report.h).
use strict;
use warnings;
open(my $report, '+<:raw', $ENV{ZOO_REPORT}) or die "no report: $!";
sub put { sysseek($report, $_[0] * 8, 0); syswrite($report, pack('Q<', $_[1])); }
sub order { sysseek($report, 80, 0); sysread($report, my $word, 8); return unpack('Q<', $word); }
my %kept = map { $_ => 'x' x 200 } 1 .. 5000;
put(1, $$);
put(0, 1);
for (my $ticks = 1; order() != 1; $ticks++) {
  $kept{ 1 + $ticks % 5000 } = 'y' x 200;
  put(2, $ticks);
  select(undef, undef, undef, 0.01);
}
exit 7;
