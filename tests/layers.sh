#!/bin/sh
# Who may include whom: fs/ -> core/, mountopts/; never the other way. Libraries stand behind one file each.
set -u
bad=0
complain() {
	echo "layers: $1"
	echo "$2"
	bad=1
}
check() { # check WHAT PATTERN FILES...
	what=$1 pattern=$2
	shift 2
	found=$(grep -nE "$pattern" "$@" 2>/dev/null) && complain "$what" "$found"
}
below=$(find core mountopts -name '*.[ch]' -o -name '*.def' -path 'core/*')
check "core/ and mountopts/ do not know fs/ or libfuse" '#include *[<"](fuse|fs/)' $below
check "mountopts/ knows of core/ only buffers and faults" '#include "core/(artifact|callable|control|device|engine|job|spool)' \
	$(find mountopts -name '*.[ch]')
check "cJSON stands behind core/base/json.c" '#include *[<"](cjson|cJSON)' \
	$(find core fs mountopts -name '*.[ch]' ! -path core/base/json.c)
check "OpenSSL stands behind core/base/crypto.c" '#include *<openssl' \
	$(find core fs mountopts -name '*.[ch]' ! -path core/base/crypto.c)
check "the accelerator's SDK stands behind core/device_calrt/" '#include *[<"]calrt' \
	$(find core fs mountopts \( -name '*.[ch]' -o -name '*.cc' \) ! -path 'core/device_calrt/*')
check "only core/device.c calls a backend's table" '(->|\.)ops->(infer|wait|configure|create_|kv_|slice_)' \
	$(find core -name '*.c' ! -path 'core/device*.c')
check "the arithmetic knows nothing of devices" '#include "core/(device|engine)' \
	$(find core/sim -name '*.[ch]')
for f in $(find core fs mountopts -name '*.c'); do
	h=${f%.c}.h
	n=$(wc -l <"$f")
	[ "$n" -le 600 ] || complain "over 600 lines" "$f: $n"
	[ -e "$h" ] || continue
	first=$(grep -m1 '^#include' "$f")
	case $first in
	"#include \"$h\"" | "#include \"${h%.h}_impl.h\"") ;;
	*) complain "own header first" "$f: $first" ;;
	esac
done
[ $bad = 0 ] && echo "layers: ok"
exit $bad
