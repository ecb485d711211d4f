#!/bin/sh
# Makes the pictures of an index of nights, on a desk and on a phone: sh docs/images/nights.sh runs/demo/nights/demo
# Needs Chromium and fonts with Chinese (Debian: chromium fonts-noto-cjk); as root: CHROMIUM="chromium --no-sandbox".
set -eu
page=$(realpath "$1")/index.html
here=$(dirname "$(realpath "$0")")
dark="--blink-settings=preferredColorScheme=0"
picture() {  # file, language, width,height, more
    ${CHROMIUM:-chromium} --headless=new --hide-scrollbars --accept-lang="$2" --window-size="$3" \
        --screenshot="$here/$1" ${4:-} "file://$page"
}
picture nights.png en-US 1440,1500
picture nights.phone.zh.png zh-CN 390,1800 "$dark"
