#!/usr/bin/env bash
# scripts/setup in a copy of its own, with stand-ins for apt, pip, compilers and CMake that write down what they were
# asked: what it installs, that a second run asks for nothing, and what it says when something is missing or was cut short.
set -uo pipefail
source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
unset CXX PYTHON JOBS

# stub NAME BODY: a program in $work/bin that logs its arguments and runs BODY.
stub() {
  printf '#!/bin/bash\nprintf "%%s\\n" "%s $*" >>"%s/log"\n%s\n' "$1" "$work" "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

fresh() {
  rm -rf "$work"/{tree,bin,log,installed,have-apt}
  mkdir -p "$work/tree" "$work/bin"
  cp -r "$source_root/scripts" "$work/tree/"
  : >"$work/log"
  echo "g++ cmake" | tr ' ' '\n' >"$work/installed"
  stub dpkg-query "sed 's/\$/ installed/' '$work/installed'"
  stub dpkg ''
  stub sudo '[ "$1" = --non-interactive ] && shift; exec "$@"'
  stub apt-get "case \" \$* \" in *' install '*) shift 4; printf '%s\n' \"\$@\" >>'$work/installed' ;; esac"
  stub g++ 'case "$1" in -dump*) echo 12.2.0 ;; *) echo "g++ (stand-in)" ;; esac'
  stub cmake "case \"\$1\" in
    --version) echo cmake version 3.25.1 ;;
    --preset) mkdir -p build/\$2; : >build/\$2/build.ninja; echo 'SAUROPOD_TESTS:BOOL=ON' >build/\$2/CMakeCache.txt ;;
    --build) [ -e build/done ] && echo 'ninja: no work to do.'; : >build/done ;;
  esac"
  stub ninja ''
  stub python3 "case \"\$*\" in
    '-m venv '*) mkdir -p \$3/bin; cp '$work/bin/python3' \$3/bin/python ;;
    *'pip install'*) [ -e '$work/fail-pip' ] && exit 1; sleep 0.2; mkdir -p .venv/lib/python3.11/site-packages/torch/lib
      : >.venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so ;;
    --version | '-c import sys; '*) echo 'Python 3.11.2' ;;
  esac"
  rm -f "$work/fail-pip"
}

setup() { # runs it; status in $status, messages in $said
  said=$(cd "$work/tree" && PATH=$work/bin:/usr/bin:/bin scripts/setup "$@" 2>&1)
  status=$?
}
check() { # check DESCRIPTION COMMAND...
  local description=$1
  shift
  if ! "$@"; then
    echo "FAILED: $description"
    echo "--- status $status; it said:"; tail -n 8 <<<"$said"
    echo "--- and asked:"; tail -n 12 "$work/log" | cut -c1-150
    failures=$((failures + 1))
  fi
}
asked() { grep --quiet -- "$1" "$work/log"; }
not() { ! "$@"; }
has() { [[ $said == *"$1"* ]]; }
ended() { [[ $status == "$1" ]]; }

fresh; setup
check "a first run succeeds" ended 0
check "it says what it installs" has "with apt: ccache"
check "it asks apt for what is missing" asked 'apt-get .*install .*ninja-build'
check "and not for what is there" not asked 'apt-get .*install .* cmake '
check "it leaves test packages alone" not asked 'libgtest-dev'
check "it takes torch without its dependencies" asked 'pip install.*--no-deps --requirement scripts/requirements.txt'
check "it builds" asked 'cmake --build build/release'
: >"$work/log"; setup
check "a second run succeeds" ended 0
check "a second run says so" has "everything is in place"
check "a second run asks apt for nothing" not asked 'apt-get'
check "a second run asks pip for nothing" not asked 'pip install'
check "a second run does not configure" not asked 'cmake --preset'
setup --tests
check "--tests succeeds" ended 0
check "--tests installs what tests need" asked 'apt-get .*install .*libgtest-dev'
check "--tests installs its pins" asked 'pip install.*requirements-tests.txt'
: >"$work/log"; setup
check "the plain set-up is part of it" not asked 'pip install'
: >"$work/log"; setup --tests
check "a second --tests installs nothing" not asked 'install'

fresh; touch "$work/fail-pip"; setup
check "a failing pip fails" ended 1
check "with a remedy" has "PIP_FIND_LINKS"
rm "$work/fail-pip"; setup
check "the next run succeeds" ended 0
check "and starts the environment anew" has "half-made"

fresh; mkdir -p "$work/tree/.venv/bin"; setup
check "an environment without Python is made anew" has "half-made"
check "and is complete then" ended 0

fresh; mkdir -p "$work/tree/elsewhere/bin"; cp "$work/bin/python3" "$work/tree/elsewhere/bin/python"
ln -s elsewhere "$work/tree/.venv"; touch "$work/tree/elsewhere/.installing" "$work/tree/elsewhere/kept"; setup
check "of a linked environment only the link is removed" test -e "$work/tree/elsewhere/kept"
check "and one of its own made" test ! -L "$work/tree/.venv"

fresh; stub g++ 'case "$1" in -dump*) echo 10.2.1 ;; *) echo "g++ (stand-in)" ;; esac'; setup
check "an old compiler fails" ended 1
check "and is named" has "g++ is version 10.2.1"

fresh; stub cmake 'echo cmake version 3.18.4'; setup
check "an old CMake is named" has "cmake is version 3.18.4"

fresh; stub python3 'exit 1'
said=$(cd "$work/tree" && PATH=$work/bin:/usr/bin:/bin PYTHON=python3 scripts/setup 2>&1); status=$?
check "a Python without venv fails" ended 1
check "with a remedy" has "python3-venv"

fresh; stub apt-get 'exit 100'; setup
check "a failing apt fails" ended 1
check "and names the packages" has "apt could not install"

fresh; rm "$work/bin/apt-get" "$work/bin/dpkg-query"
mkdir "$work/few"; for tool in bash dirname mkdir cat flock sed awk grep sort head; do ln -sf "$(command -v $tool)" "$work/few/"; done
said=$(cd "$work/tree" && PATH=$work/bin:$work/few scripts/setup 2>&1); status=$?
check "no apt fails" ended 1
check "and says how to go on" has "scripts/setup --no-apt"

fresh; setup --bogus
check "an unknown option is wrong use" ended 2

fresh
for _ in 1 2; do (cd "$work/tree" && PATH=$work/bin:/usr/bin:/bin scripts/setup >/dev/null 2>&1) & done
wait
said='' status=0
check "of two at once only one installs" test "$(grep -c 'pip install' "$work/log")" = 1

((failures == 0)) && echo "set-up: all checks passed"
exit $((failures > 0))
