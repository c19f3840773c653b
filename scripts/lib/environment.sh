# Functions that the scripts share: they prepare a Python environment with the project in it, and Java. Sourced, not run.
#
#   prefer_optimised_python      for measurements: lets the next function use .venv-optimised, with a Python that was built
#                                with optimisation, if the Python of .venv was not and the machine has such a Python.
#   prepare_environment EXTRAS   makes .venv if there is none, installs the project into it, finds or installs Java.
#                                Sets $python; exports JAVA_HOME and PATH, so that `tidelog` and Spark are found.
#
# TIDELOG_VENV names another directory than .venv. The project is installed again only when pyproject.toml changes.

project=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
venv=${TIDELOG_VENV:-$project/.venv}
python=$venv/bin/python

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$(basename -- "$0"): $*"
  exit 1
}

prepare_environment() {
  local extras=$1 wanted present
  wanted=$(_stamp)
  present=$(cat -- "$venv/.stamp" 2>/dev/null || true)
  if [[ "${present%% *}" != "$wanted" ]] || ! _covers "${present#* }" "$extras" || ! "$python" -c '' 2>/dev/null; then
    _make_environment "$extras"
    printf '%s %s\n' "$wanted" "$extras" >"$venv/.stamp"
  fi
  export PATH="$venv/bin:$PATH"
  _prepare_java
}

# Changes nothing if the user has set PYTHON or TIDELOG_VENV.
prefer_optimised_python() {
  local candidate
  if [[ -n ${TIDELOG_VENV:-}${PYTHON:-} ]] || _is_optimised "$python"; then
    return
  fi
  for candidate in python3 /usr/bin/python3 /usr/bin/python3.{14,13,12,11}; do
    if _is_optimised "$candidate" && "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
      PYTHON=$candidate
      venv=$project/.venv-optimised
      python=$venv/bin/python
      return
    fi
  done
  say "no Python on this machine was built with optimisation: rates are 10 to 20 % lower than with one; PYTHON=PATH names one"
}

_is_optimised() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && "$1" "$project/tools/bench/interpreter.py"
}

# Prints a digest of what an installation depends on: the project's requirements and the directory of the project.
_stamp() {
  { cat -- "$project/pyproject.toml"; printf '%s\n' "$project" "$venv"; } | sha256sum | cut -d ' ' -f 1
}

# Succeeds if the extras in $1 include each of those in $2. The extra `local` includes two others (pyproject.toml).
_covers() {
  local extra
  for extra in ${2//,/ }; do
    [[ ",${1/local/local,cli,broker}," == *",$extra,"* ]] || return 1
  done
}

_make_environment() {
  local extras=$1 base log
  base=$(_find_python)
  if [[ ! -x $python ]] || ! "$python" -m pip --version >/dev/null 2>&1; then
    say "making a Python environment in $venv"
    rm -rf -- "$venv"
    "$base" -m venv -- "$venv" >&2 || die "$base cannot make an environment: apt-get install python3-venv"
  fi
  log=$venv/install.log
  say "installing tidelog[$extras] (Spark has 400 MB and takes a few minutes the first time); the log is $log"
  export PIP_DISABLE_PIP_VERSION_CHECK=1
  (cd -- "$project" && "$python" -m pip install --editable ".[$extras]") >"$log" 2>&1 ||
    die "pip failed: $(grep -i error -- "$log" | tail -n 1 || true) (see $log)"
}

_find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    if [[ -n $candidate ]] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  die "Python 3.11 or newer is needed: apt-get install python3 python3-venv, or set PYTHON"
}

_prepare_java() {
  local java
  if ! java=$(_find_java) && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    say "installing Java (openjdk-17-jre-headless)"
    { apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless; } \
      </dev/null >"$venv/java.log" 2>&1 || die "apt-get failed: see $venv/java.log"
    java=$(_find_java) || true
  fi
  if [[ -z $java ]]; then
    "$python" -c 'from tidelog.local.java import find_java; find_java()' 2>&1 | tail -n 1 | cut -d : -f 2- >&2
    exit 1
  fi
  # Spark prefers JAVA_HOME to PATH, and JAVA_HOME may point to an older Java.
  JAVA_HOME=$(dirname -- "$(dirname -- "$(readlink -f -- "$java")")")
  export JAVA_HOME
}

_find_java() {
  "$python" -c 'from tidelog.local.java import find_java; print(find_java())' 2>/dev/null
}
