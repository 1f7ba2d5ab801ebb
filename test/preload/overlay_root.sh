#!/bin/sh
# overlay_root.sh PROGRAM PLUGIN OTHER [ARGUMENT]...: runs the program in a root that is an overlay, as
# containers have it, in the mount namespace that this script is run in (unshare --mount). The upper
# layer has PLUGIN as /object.so. In /inside is a root with nothing but OTHER as /object.so.
set -e
program=$1 plugin=$2 other=$3
shift 3
mkdir layers
mount -t tmpfs none layers
root=$PWD/layers/root
mkdir layers/upper layers/work "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=layers/upper,workdir=layers/work" "$root"
cp "$plugin" "$root/object.so"
mkdir "$root/inside"
mount --bind "$root/inside" "$root/inside" # or it could not be made the root
cp "$other" "$root/inside/object.so"
# What the run needs of other file systems.
for into in "$root" "$root/inside"; do
    for folder in /proc "$(dirname "$program")" "$(dirname "$LD_PRELOAD")" "$LIBAGENT_OUTPUT"; do
        mkdir -p "$into$folder"
        mount --bind "$folder" "$into$folder"
    done
done
exec chroot "$root" "$program" "$@"
