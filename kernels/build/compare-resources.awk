# Tells which kernels take more in the new table (second file) than in the old one (first file).
/^#/ { next }
$1 == "kernel" { for (i = 3; i <= NF; i++) column[i] = $i; next }
NR == FNR { for (i = 3; i <= NF; i++) old[$1, $2, i] = $i; rows[$1, $2]; next }
!(($1, $2) in rows) { new++; next }
{
  delete rows[$1, $2]
  worse = ""
  for (i = 3; i <= NF; i++) {
    if ($i + 0 > old[$1, $2, i] + 0) worse = worse ", " column[i] " " old[$1, $2, i] " -> " $i
    if ($i + 0 < old[$1, $2, i] + 0) better++
  }
  if (worse) print "kernels: " $1 " for " $2 " got worse" worse
}
END {
  for (gone in rows) lost++
  print "kernels: against the table before, " better + 0 " figures are better, " new + 0 " rows are new, " lost + 0 " are gone"
}
