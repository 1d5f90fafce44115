#!/bin/sh
# The main job, from nothing: a store with a fresh key, a mount, requests and their answers, and away again.
# Everything is made in a folder of its own, and removed at the end.
set -eu
BUILD=$(realpath "${BUILD:-build}")
export BUILD
here=$(realpath "$(dirname "$0")")
if [ "$(id -u)" = 0 ] && [ -z "${NPUFS_DEMO_INSIDE:-}" ]; then
	NPUFS_DEMO_INSIDE=1 exec unshare -m --propagation private sh "$0"
fi
work=$(mktemp -d)
mnt=$work/mnt
pid=
cleanup() {
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || true
	[ -z "$pid" ] || wait "$pid" || true
	rm -rf "$work"
}
trap cleanup EXIT
show() {
	printf '\n$ %s\n' "$*"
	sh -c "$*" || printf '(exit code %s)\n' "$?"
}

mkdir "$mnt"
sh "$here/make-store.sh" "$work/store" >/dev/null
"$BUILD/npufs" -f -o log=stderr "$work/store" "$mnt" 2>"$work/log" &
pid=$!
for _ in $(seq 100); do
	[ ! -e "$mnt/ready" ] || break
	sleep 0.1
done
[ -e "$mnt/ready" ] || { cat "$work/log" "$mnt/health" >&2; exit 1; }
cd "$mnt"

show ls
show cat health
show ls models
show cat manifests/dates.json
show 'echo "3rd of March, 2024" > jobs/a.txt; cat jobs/a.out'
show "echo '{\"prompt\": \"the twenty-first day of June, 1997\", \"output\": \"json\"}' > jobs/b.json; cat jobs/b.out"
show cat jobs/b.status
show "echo '{\"promt\": \"3 Mar 2024\"}' > jobs/c.json"
show cat jobs/c.err
show cat models/xor/example.json
show 'cp models/xor/example.json jobs/d.json; cat jobs/d.out'
show ls jobs
show 'grep npufs_jobs_ metrics'

cd /
printf '\n$ umount\n'
kill "$pid"
wait "$pid"
pid=
echo "unmounted, exit code 0"
