#!/usr/bin/env bash
# Resolves every lock from its inputs. Hashes are kept, index addresses are not: hosts configure them.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
  .venv/bin/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header "$@"
}

main() {
  compile --universal --python-version 3.10 pyproject.toml -o requirements.lock
  compile --universal --python-version 3.10 --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock
  local input options
  while IFS= read -r input; do
    options=()
    # Its metadata asks for more than its slim mode needs: requirements.in beside it is the slim list.
    if [[ $input == */open-webui.in ]]; then options=(--no-deps); fi
    # Its packages need the one that pyproject.toml leaves out of all others' requirements.
    if [[ $input == */kt-sglang/* ]]; then options=(--no-config); fi
    compile --python-version 3.11 "${options[@]}" "$input" -o "${input%.in}.lock"
  done < <(git ls-files 'images/*.in')
  while IFS= read -r input; do
    compile --universal --python-version 3.10 "$input" -o "${input%.in}.lock"
  done < <(git ls-files 'tests/clients/*.in')
  npm install --prefix tests/clients --silent --no-audit --no-fund --package-lock-only --omit-lockfile-registry-resolved
}

main "$@"
