#!/bin/bash
# Builds the counting stand-in driver: count.sh OUTDIR
exec "$(dirname "$0")/build.sh" "${1:?usage: count.sh OUTDIR}" count
