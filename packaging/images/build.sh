#!/bin/sh
# Builds the images with podman or docker and writes the guest, all under one tag.
#
# Usage: sh build.sh podman FOLDER      FOLDER: the .deb of scripts/make-packages deb
set -eu

here=$(dirname "$0")
"$1" build -t "${VMLAB_IMAGE}" -f "$here/vmlab.Containerfile" "$2"
vmlab image export "${GUEST}" "$here/guest.tar" --to containerdisk --tag "${GUEST_IMAGE}"
