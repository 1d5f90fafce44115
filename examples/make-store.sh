#!/bin/sh
# make-store.sh STORE: a store with the example models, signed by a fresh key beside it (STORE-key.pem).
set -eu
here=$(dirname "$0")
admin=${BUILD:-build}/npufs-admin
store=${1:?usage: make-store.sh STORE}
# The key stays when the store is made anew.
if [ -e "$store" ]; then
	echo "store: $store is there already; remove it to make it anew" >&2
	exit 1
fi
"$admin" store init "$store"
[ -e "$store-key.pem" ] || "$admin" key generate "$store-key"
"$admin" store trust "$store" "$store-key.pub.pem"
for model in dates xor; do
	"$admin" artifact import package "$here/$model" "$store/models/$model"
	"$admin" artifact sign "$store/models/$model" "$store-key.pem"
done
