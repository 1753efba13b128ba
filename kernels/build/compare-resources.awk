# Compares the compiled kernels (second file) with the committed table (first file): fails where one
# takes more than the table says, and for a kernel that is not in it. Numbers of another nvcc are no
# news about the sources: then it only tells.
function row() { return $1 "\t" $2 }
function complain(text) { complaint[++complaints] = "kernels: " text }

/^# nvcc / { version[NR == FNR] = $0; next }
$1 == "kernel" { for (i = 3; i <= NF; i++) column[i] = $i; next }
NR == FNR { for (i = 3; i <= NF; i++) old[row(), i] = $i; rows[row()]; next }
!(row() in rows) { complain($1 " for " $2 " is not in resources.tsv"); next }
{
  delete rows[row()]
  worse = ""
  for (i = 3; i <= NF; i++) {
    if ($i + 0 > old[row(), i] + 0) worse = worse ", " column[i] " " old[row(), i] " -> " $i
    if ($i + 0 < old[row(), i] + 0) better++
  }
  if (worse) complain($1 " for " $2 " got worse" worse)
}
END {
  for (gone in rows) stale++
  foreign = version[1] != version[0]
  update = "kernels/build/compile-cuda --update"
  if (complaints && !foreign) {
    for (i = 1; i <= complaints; i++) print complaint[i]
    print "kernels: make that better, or record it in the same change: " update
    exit 1
  }
  if (foreign && (complaints || better)) print "kernels: resources.tsv was written with" \
    substr(version[1], 2) ", this is" substr(version[0], 2) ": differences are not held against it"
  else if (better + stale) print "kernels: " better + 0 " figures got better and " stale + 0 \
    " rows of resources.tsv are gone; to record it: " update
}
