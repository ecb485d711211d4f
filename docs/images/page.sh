#!/bin/sh
# Makes the pictures of the report page in both languages: sh docs/images/page.sh runs/demo/report.html
# Needs Chromium and fonts with Chinese (Debian: chromium fonts-noto-cjk); as root: CHROMIUM="chromium --no-sandbox".
set -eu
page=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
for picture in en-US:page.png zh-CN:page.zh.png; do
    ${CHROMIUM:-chromium} --headless=new --hide-scrollbars --accept-lang="${picture%%:*}" \
        --window-size=900,1075 --screenshot="$here/${picture#*:}" "file://$page"
done
