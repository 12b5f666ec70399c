#!/bin/sh
# Puts the key table into docs/configuration.md as the built program prints it:
#   tools/update_configuration_doc.sh build/megatoken
set -eu
doc=$(dirname "$0")/../docs/configuration.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT
sed '/^<!-- keys: /q' "$doc" >"$new"
{
  echo
  "$1" train --help-keys=markdown
  echo
  sed -n '/^<!-- end of keys -->/,$p' "$doc"
} >>"$new"
cat "$new" >"$doc"
