#!/bin/bash
# Builds the counting stand-in driver, OUTDIR/count/libcuda.so.1: count.sh OUTDIR
exec "$(dirname "$0")/build.sh" "${1:?usage: count.sh OUTDIR}/count" count
