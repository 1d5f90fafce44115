#!/bin/sh
# deps.sh PACKAGE...: install the Debian packages that are missing. Says what to do where it cannot.
set -eu
missing=
for p in "$@"; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
	echo "deps: these packages (Debian's names) are missing:$missing" >&2
	echo "deps: there is no apt-get here; install them by your system's means" >&2
	exit 1
fi
if [ "$(id -u)" = 0 ]; then
	as=
elif command -v sudo >/dev/null; then
	as=sudo
else
	echo "deps: these packages are missing:$missing" >&2
	echo "deps: you are not root and there is no sudo; have root run: apt-get install$missing" >&2
	exit 1
fi
echo "deps: installing$missing"
$as env DEBIAN_FRONTEND=noninteractive apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
