#!/bin/sh
# Prints the linker's version script for a list of exports ($1: one name a line, # comments).
# One anonymous node: with a named one, pthread_create would not be interposed.
echo "/* Made of $1 by make map. */"
echo '{'
echo '    global:'
sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' -e 's/.*/        &;/' "$1"
echo '    local:'
echo '        *;'
echo '};'
