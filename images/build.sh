#!/usr/bin/env bash
# Builds the images with docker or podman, and writes what is in each (an SBOM). `make images` calls it.
#
#   images/build.sh [data] [train] [cluster] [data-ray]      the first three by default
#
# By the environment:
#   ENGINE       docker or podman; the one that is installed by default
#   PREFIX       before each name: registry.example/team/
#   BASE         another base image, such as a mirror's: registry.example/python@sha256:...
#   TORCH        cpu: torch's build for CPUs in yanmo-train; TORCH_INDEX: a mirror of its index
#   BUILD        more options of `build`: BUILD="--network host --build-arg HTTPS_PROXY=http://proxy.example:3128"
#   SBOM         folder for the SBOMs, build/sbom by default; they are written by syft, where it is installed
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "images/build.sh: $1" >&2; exit "$2"; }

images=("$@")
[ $# -gt 0 ] || images=(data train cluster)
for image in "${images[@]}"; do
    [ -f "images/${image%-ray}/Dockerfile" ] \
        || fail "error: no image $image; there are data, train, cluster and data-ray" 64
done
case ${TORCH:-cuda} in cpu | cuda) ;; *) fail "error: TORCH=$TORCH: expected cpu or cuda" 64 ;; esac

engine=${ENGINE:-}
[ -n "$engine" ] || engine=$(command -v docker || command -v podman) \
    || fail "error: neither docker nor podman is installed (Debian: apt-get install docker.io, or podman)" 78
command -v "$engine" >/dev/null || fail "error: ENGINE=$engine is not installed" 78
"$engine" info >/dev/null 2>&1 \
    || fail "error: $engine does not answer: is its daemon running, and may you use it? \`$engine info\` says more" 78

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ "$revision" = unknown ] || [ -z "$(git status --porcelain)" ] || revision+=-changed
options=(--label "org.opencontainers.image.revision=$revision"
    --label "org.opencontainers.image.created=$(date -u +%Y-%m-%dT%H:%M:%SZ)")
commit=$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || true)
options+=(--build-arg "COMMIT=$commit")
[ -z "${BASE:-}" ] || options+=(--build-arg "BASE=$BASE")
read -ra more <<< "${BUILD:-}"

for image in "${images[@]}"; do
    name="${PREFIX:-}yanmo-$image:$version"
    own=()
    if [ "$image" = train ]; then
        own+=(--build-arg "TORCH=${TORCH:-cuda}")
        [ -z "${TORCH_INDEX:-}" ] || own+=(--build-arg "TORCH_INDEX=$TORCH_INDEX")
    fi
    [ "$image" != data-ray ] || own+=(--build-arg EXTRA=ray)
    echo "== $name"
    "$engine" build --file "images/${image%-ray}/Dockerfile" --tag "$name" "${options[@]}" "${own[@]}" "${more[@]}" .
done

if command -v syft >/dev/null; then
    folder=${SBOM:-build/sbom}
    mkdir -p "$folder"
    for image in "${images[@]}"; do
        written="$folder/yanmo-$image-$version.spdx.json"
        source="docker:${PREFIX:-}yanmo-$image:$version"
        if [ "$(basename "$engine")" = podman ]; then  # which answers syft only where its API service runs
            "$engine" save --quiet --output "$written.tar" "${PREFIX:-}yanmo-$image:$version"
            source="docker-archive:$written.tar"
        fi
        syft scan "$source" --quiet --output "spdx-json=$written.tmp" || fail "error: syft cannot read $source" 70
        mv "$written.tmp" "$written"
        rm -f "$written.tar"
        echo "SBOM    $written"
    done
else
    echo "No SBOM: syft is not installed (https://github.com/anchore/syft); run it later, by the image's name"
fi
for image in "${images[@]}"; do
    name="${PREFIX:-}yanmo-$image:$version"
    echo "$name  $("$engine" image inspect --format '{{.Size}}' "$name" | awk '{printf "%.0f MB", $1 / 1e6}')"
done
[ -z "${PREFIX:-}" ] || echo "Push them, then: yanmo compile --image-prefix $PREFIX --out build/pipelines"
