#!/bin/sh
# watch.sh JOBS [COUNT]: prints each output in the folder JOBS (and those below it) as it appears, and each failure's
# reason; ends after COUNT of them. The mount needs -o inotify; inotifywait is in the package inotify-tools.
# Names that begin with a dot, or have a line end in them, are left out.
set -u
jobs=${1:?usage: watch.sh JOBS [COUNT]}
count=${2:-0}
fifo=$(mktemp -u)
mkfifo -m 600 "$fifo"
inotifywait -q -m -r -e close_write --format '%w%f' "$jobs" >"$fifo" &
watcher=$!
exec 3<"$fifo"
rm -f "$fifo"
trap 'kill "$watcher" 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM
while IFS= read -r path <&3; do
	case ${path##*/} in
	.*) continue ;;
	*.out) printf '%s: ' "${path#"$jobs"/}" && cat -- "$path" ;;
	*.err) printf '%s: ' "${path#"$jobs"/}" && sed -n 's/^reason: //p' -- "$path" ;;
	*) continue ;;
	esac
	count=$((count - 1))
	[ "$count" -ne 0 ] || exit 0
done
exit 1
