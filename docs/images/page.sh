#!/bin/sh
# Makes the pictures of the report page, on a desk and on a phone: sh docs/images/page.sh runs/demo/report.html
# Needs Chromium and fonts with Chinese (Debian: chromium fonts-noto-cjk); as root: CHROMIUM="chromium --no-sandbox".
set -eu
page=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
dark="--blink-settings=preferredColorScheme=0"
picture() {  # file, language, width,height, more
    ${CHROMIUM:-chromium} --headless=new --hide-scrollbars --accept-lang="$2" --window-size="$3" \
        --screenshot="$here/$1" ${4:-} "file://$page"
}
picture page.png en-US 1440,1500
picture page.zh.png zh-CN 1440,1440
picture page.phone.png en-US 390,1800
picture page.phone.zh.png zh-CN 390,1800 "$dark"
