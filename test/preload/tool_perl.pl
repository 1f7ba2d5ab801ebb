# perl: strings, hashes and sorting; handlers, a timer that ends a wait, children, pipes.
# Told: the hash of all lines, what each of the others gives; it ends by die.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
$| = 1;

my $seed = 1;
sub draw { $seed = ($seed * 1103515245 + 12345) % 2147483648; return $seed }
my (%count, @lines);
push @lines, join ' ', map { 'word' . draw() % 5000 } 1 .. 5 for 1 .. 100000;
for (@lines) {
    $count{$_}++ for split;
    s/(\d+)/<$1>/g;
}
print sha256_hex(join "\n", sort @lines), "\n";
my @words = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print "$_ $count{$_}\n" for @words[0 .. 9];

local $SIG{USR1} = sub { print "usr1\n" };
kill USR1 => $$;
local $SIG{ALRM} = sub { die "alarm\n" };
eval { alarm 1; sleep 30 };
print $@;
print 'select ', select(undef, undef, undef, 0.1), "\n";
for my $i (1 .. 50) {
    my $pid = fork // die;
    exit $i % 7 unless $pid;
    waitpid $pid, 0;
    print $? >> 8, ' ';
}
open my $pipe, '|-', 'sort -n | uniq -c' or die;
print $pipe draw() % 10, "\n" for 1 .. 1000;
close $pipe;
print `printf in; exit 3`, ' ', $? >> 8, "\n";
warn "warned\n";
$! = 9;
die "died\n";
