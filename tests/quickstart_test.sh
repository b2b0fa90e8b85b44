#!/usr/bin/env bash
# The quickstart in miniature, on this project's own sources: that every command works with the next one's files, what it
# leaves, and what a second run, a changed recipe and other text do.
set -uo pipefail
program=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

mkdir "$work/text"
cp "$root"/src/{base,config,data,formats}/*.{h,cpp} "$root"/docs/*.md "$work/text/"

quickstart() { # output in $said, status in $status
  said=$("$root/scripts/quickstart" --program "$program" --text "$work/text" --out "$work/run" --vocab-size 1000 \
    --valid-fraction 0.1 --set model.layers=2 --set model.hidden=64 --set model.heads=2 --set model.context=64 \
    --set train.batch_sequences=8 --set train.fit_time=0 --set train.max_time=0 --set train.steps=40 --set train.warmup_tokens=2000 --set train.precision=fp32 "$@" 2>&1)
  status=$?
}
check() { # check DESCRIPTION COMMAND...
  local description=$1
  shift
  "$@" && return
  printf 'FAILED: %s (status %s); it said:\n%s\n' "$description" "$status" "$(tail -n 15 <<<"$said")"
  failures=$((failures + 1))
}
has() { [[ $said == *"$1"* ]]; }
not() { ! "$@"; }
inode() { stat --format=%i "$work/run/$1"; }
# value FILE EXPRESSION: the expression about the JSON value `x` holds.
value() { python3 -c 'import json, sys; x = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$work/run/$1" "$2"; }

quickstart
check "it succeeds" test "$status" = 0
for file in tokenizer.json data/train.bin data/train.idx data/valid.bin data/pack.json metrics.jsonl events.jsonl run.toml \
  checkpoints report.html; do
  check "it leaves $file" test -e "$work/run/$file"
done
check "it trained every step" test "$(wc -l <"$work/run/metrics.jsonl")" = 40
check "the model has learnt something" value eval.json '0 < x["bits_per_byte"] < 7'
check "the held-out bytes are those evaluated" \
  value eval.json "x['bytes'] == $(cat "$work"/run/data/heldout/* | wc -c)"
check "there are three samples" value samples.json 'len(x) == 3 and all(s["text"] for s in x)'
check "the report has the samples" grep --quiet samples "$work/run/report.html"
((failures == 0)) || exit 1

tokenizer=$(inode tokenizer.json) metrics=$(inode metrics.jsonl)
quickstart
check "a second run succeeds" test "$status" = 0
check "a second run says what it reuses" has "already trained"
check "a second run trains nothing" test "$metrics" = "$(inode metrics.jsonl)"

quickstart --set train.seed=7
check "a changed recipe succeeds" test "$status" = 0
check "a changed recipe keeps the vocabulary" test "$tokenizer" = "$(inode tokenizer.json)"
check "a changed recipe trains again" not has "already trained"

echo 'Other text, one line more.' >>"$work/text/README.md"
quickstart
check "other text succeeds" test "$status" = 0
check "other text is said to start anew" has "removing what an earlier run"

said=$("$root/scripts/quickstart" --program "$program" --text "$work/nowhere" --out "$work/other" 2>&1)
status=$?
check "a missing folder fails" test "$status" = 1
check "and is named" has "there is no $work/nowhere"

((failures == 0)) && echo "quickstart: all checks passed"
exit $((failures > 0))
