# results.md from the lines of JSON that the benchmarks print, for gpu-verify; all of them are flat but for the
# medians and ranges. Loupe's lines of whole models are compared with PyTorch's of the same run. With -v brief=1
# only what fits a screen: the texts compared, whole models without maps, and the fastest variant of each kernel.

function text(name) { return match($0, "\"" name "\": \"[^\"]*\"") ? substr($0, RSTART + length(name) + 5, RLENGTH - length(name) - 6) : "" }
function number(name) { return match($0, "\"" name "\": [0-9.e+-]+") ? substr($0, RSTART + length(name) + 4) + 0 : 0 }
function part(name, of, s) { # name of the object `of`
  if (!match($0, "\"" of "\": [{][^}]*")) return 0
  s = substr($0, RSTART, RLENGTH)
  return match(s, "\"" name "\": [0-9.e+-]+") ? substr(s, RSTART + length(name) + 4) + 0 : 0
}
function median(of) { return part("median", of) }
function rate(tokens, ms) { return ms > 0 && tokens > 0 ? 1000 * tokens / ms : 0 }
function cell(value, loupe) { # with how many times as fast Loupe is
  if (!value) return ""
  return sprintf("%.0f", value) (loupe ? sprintf(" (%.2f)", loupe / value) : "")
}
function heading(s) { printf "\n## %s\n\n", s }

/^[{]"model"/ || /^[{]"by"/ {
  by = text("by") == "" ? "Loupe" : text("by")
  key = text("model") SUBSEP text("dtype") SUBSEP text("maps")
  if (!((by, key) in seen)) { seen[by, key] = 1; rows[++n] = by; keys[n] = key }
  tokens = number("decode_tokens")
  if (tokens) decode[by, key] = rate(tokens, median("decode_ms"))
  if (text("maps") ~ / texts$/) next # of shorter prompts
  prefill[by, key, tokens ? "first" : "long"] = rate(number("prefill_tokens"), median("prefill_ms"))
  if (tokens) {
    first = number("prefill_tokens"); written = tokens
  } else {
    long = number("prefill_tokens")
  }
  if (text("versions") != "") versions = text("versions")
  if (number("graph_skips") > 0) skipped = 1
}
/^[{]"ids"/ { ids[++texts] = sprintf("%s: %s", text("ids"), text("found")) }
/^[{]"ceiling": "copy"/ { copy = median("GB_per_s") }
/^[{]"ceiling": "f16 product"/ { product = median("TFLOP_per_s"); product_by = text("by"); product_shape = text("shape") }
/^[{]"kernel"/ {
  gb = 1e-3 * number("bytes") / median("us")
  kind = text("kernel") " in " text("element") ", " text("shape")
  if (!(kind in fastest)) kinds[++families] = kind
  if (!(kind in fastest) || median("us") < fastest[kind]) {
    fastest[kind] = median("us")
    by_variant[kind] = text("variant")
    of_copy[kind] = gb
  }
  kernels[++k] = sprintf("| %s | %s | %s | %s | %.1f (%.1f to %.1f) | %.0f | ", text("kernel"), text("variant"),
    text("element"), text("shape"), median("us"), part("p10", "us"), part("p90", "us"), gb)
  gbs[k] = gb
}
/^[{]"edge"/ {
  edges[++e] = sprintf("| %s | %d | %.2f (%.2f to %.2f) |", text("edge"), number("blocks"), median("us"),
    part("p10", "us"), part("p90", "us"))
}
/^[{]"stream"/ {
  rates[++s] = median("GB_per_s")
  streams[s] = "| " text("stream") (number("stages") ? " of " number("stages") : "") " | " sprintf("%.0f", rates[s]) " | "
}

function models(compared,   i, by, key, p, own) {
  for (i = 1; i <= n; i++) {
    by = rows[i]; key = keys[i]
    if ((by != "Loupe") != compared) continue
    split(key, p, SUBSEP)
    own = compared ? "Loupe" : "nobody"
    printf "| %s%s | %s | %s | %s | %s | %s |\n", compared ? by " | " : "", p[1], p[2], p[3],
      cell(prefill[by, key, "first"], prefill[own, key, "first"]), cell(prefill[by, key, "long"], prefill[own, key, "long"]),
      cell(decode[by, key], decode[own, key])
  }
}

function screen(   i, by, key, p) {
  for (i = 1; i <= texts; i++) printf "  text against the CPU, %s\n", ids[i]
  for (i = 1; i <= n; i++) {
    by = rows[i]; key = keys[i]
    split(key, p, SUBSEP)
    if (p[3] != "off") continue
    printf "  %-12s %-12s %-4s  prompt of %d: %s tokens/s, text: %s tokens/s\n", by, p[1], p[2], first,
      cell(prefill[by, key, "first"]), cell(decode[by, key])
  }
  if (copy) printf "  the card copies %.0f GB/s%s\n", copy, product ? sprintf(", multiplies at %.0f TFLOP/s in f16", product) : ""
  for (i = 1; i <= families && i <= 16; i++)
    printf "  %-58s %-4s %8.1f us%s\n", substr(kinds[i], 1, 58), by_variant[kinds[i]], fastest[kinds[i]],
      copy ? sprintf(", %.0f%% of copy", 100 * of_copy[kinds[i]] / copy) : ""
  if (families > 16) printf "  and %d more kernels and shapes in results.md\n", families - 16
}

END {
  if (brief) {
    screen()
    exit
  }
  if (texts) {
    heading("Text against the CPU")
    for (i = 1; i <= texts; i++) print "- " ids[i]
  }
  if (n) {
    heading("Whole models")
    printf "Tokens a second, from the median of five runs: a prompt of %d, then %d more; a prompt of %d alone; of several texts, the tokens of all.\n\n", first, written, long
    printf "| model | weights | maps | prompt %d | prompt %d | text |\n|---|---|---|---:|---:|---:|\n", first, long
    models(0)
  }
  if (versions != "") {
    heading("PyTorch on the same card")
    print versions ". Medians of three runs; in brackets: how many times as fast Loupe is, weights\nin the same precision, maps as well." \
      (skipped ? " torch.compile left its CUDA graphs out in part, see pytorch.log." : "") "\n"
    printf "| by | model | weights | maps | prompt %d | prompt %d | text |\n|---|---|---|---|---:|---:|---:|\n", first, long
    models(1)
  }
  if (copy || k) {
    heading("Kernels")
    if (copy) printf "The card copies %.0f GB/s (read and written).", copy
    if (product) printf " A product of %s in f16 by %s: %.0f TFLOP/s.", product_shape, product_by, product
    print " Microseconds are medians\nwith the 10th and 90th percentile, after the cache was flushed; GB/s count inputs and outputs once.\n"
    print "| kernel | variant | element | shape | us | GB/s | of copy |\n|---|---|---|---|---:|---:|---:|"
    for (i = 1; i <= k; i++) print kernels[i] (copy ? sprintf("%.0f%%", 100 * gbs[i] / copy) : "") " |"
  }
  if (e || s) heading("What a persistent kernel would stand on")
  if (e) {
    print "One dependency of every block on every block:\n"
    print "| by | blocks | us |\n|---|---:|---:|"
    for (i = 1; i <= e; i++) print edges[i]
    print ""
  }
  if (s) {
    print "Reading, one block a multiprocessor; stages of 16 KiB:\n"
    print "| by | GB/s | of copy |\n|---|---:|---:|"
    for (i = 1; i <= s; i++) print streams[i] (copy ? sprintf("%.0f%%", 100 * rates[i] / copy) : "") " |"
  }
}
