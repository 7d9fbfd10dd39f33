# Hashes, strings, sorting, regular expressions, closures and fork; prints sums.
use strict;
use warnings;

my $scale = shift;

my %count;
my $word = 12345;
for my $i (1 .. 150_000 * $scale) {
    $word = ($word * 1103515245 + 12345) % 2147483648;
    $count{ "w" . $word % 30_011 } .= chr(97 + $word % 26);
}
my @top = sort { length $count{$b} <=> length $count{$a} || $a cmp $b } keys %count;
print "words ", scalar(@top), " $top[0] $count{$top[0]}\n";

my $text = join ",", map { "$_=" . ( "x" x ( $_ % 70 ) ) } 1 .. 20_000;
my $matches = () = $text =~ /\d*7=x{3,}/g;
( my $changed = $text ) =~ s/(\d+)=(x+)/$2:$1/g;
print "matches $matches ", length $changed, " ", unpack( "%32C*", $changed ), "\n";

my @closures = map { my $n = $_; sub { $n += shift; "$n" } } 1 .. 20_000;
my $sum = 0;
$sum += $_->(3) for @closures;
print "closures $sum\n";

my $grown = "";
$grown .= "line $_\n" x 20 for 1 .. 20_000;
print "grown ", length $grown, "\n";

for my $n ( 1 .. 5 ) {
    my $pid = open( my $child, "-|" ) // die "fork: $!";
    if ( !$pid ) {
        my @own = map { "$n-$_" x 5 } 1 .. 5_000;
        print length join( "", @own ), "\n";
        exit 0;
    }
    print "child $n ", scalar <$child>;
    close $child or die "child: $?";
}
