# Which Debian mirror a host's apt uses. Reads *.list (one-line) and *.sources (deb822), prints
#   mirror=URI     the best entry for Debian itself: at most one
#   security=URI   its security archive: at most one
# Other repositories also call their suites "bookworm" or "stable", so an entry counts as Debian
# only when its key is Debian's or unnamed, and its suite is a Debian release.

BEGIN {
    split("buster bullseye bookworm trixie forky duke sid", names, " ")
    for (i in names) codename[names[i]] = 1
    split("oldoldstable oldstable stable testing unstable", names, " ")
    for (i in names) nickname[names[i]] = 1
    best = 0
}

FNR == 1 { end_of_stanza() }
FILENAME ~ /\.sources$/ { deb822(); next }
/^[ \t]*deb[ \t]/ { one_line($0) }

END {
    end_of_stanza()
    if (mirror != "") print "mirror=" mirror
    if (security != "") print "security=" security
}

function one_line(line,    options, words, count, i, key, components) {
    sub(/#.*/, "", line)
    sub(/^[ \t]*deb[ \t]+/, "", line)
    key = ""
    if (match(line, /^\[[^]]*\]/)) {
        options = substr(line, 2, RLENGTH - 2)
        line = substr(line, RLENGTH + 1)
        if (match(options, /signed-by=[^ \t]+/)) key = substr(options, RSTART + 10, RLENGTH - 10)
    }
    count = split(line, words, " ")
    components = ""
    for (i = 3; i <= count; i++) components = components " " words[i]
    if (count >= 3) consider(words[1], words[2], components, key)
}

function deb822(    colon) {
    if ($0 ~ /^#/) return
    if ($0 ~ /^[ \t]*$/) { end_of_stanza(); return }
    if ($0 ~ /^[ \t]/) { field[name] = field[name] " " $0; return }
    colon = index($0, ":")
    name = tolower(substr($0, 1, colon - 1))
    field[name] = substr($0, colon + 1)
}

function end_of_stanza(    uris, suites, uri_count, suite_count, i, j) {
    if (has(field["types"], "deb") && tolower(field["enabled"]) !~ /no|false|0|off|disable/) {
        uri_count = split(field["uris"], uris, " ")
        suite_count = split(field["suites"], suites, " ")
        for (i = 1; i <= uri_count; i++)
            for (j = 1; j <= suite_count; j++)
                consider(uris[i], suites[j], field["components"], field["signed-by"])
    }
    split("", field)
    name = ""
}

function has(words, wanted) { return (" " words " ") ~ ("[ \t]" wanted "[ \t]") }

function consider(uri, suite, components, key,    score, of_debian) {
    if (uri ~ /^mirror\+file:/) uri = first_mirror_in(uri)
    if (uri !~ /^https?:\/\// || !has(components, "main")) return
    if (key ~ /[^ \t]/ && key !~ /debian-archive/) return
    if (uri ~ /^https?:\/\/[^\/]*@/) {
        print "rootfs: passing over an apt source with a password: it would end up in the image" \
            > "/dev/stderr"
        return
    }
    sub(/\/+$/, "", uri)
    if (suite ~ /-security$/ || suite ~ /\/updates$/) {
        if (security == "") security = uri
        return
    }
    of_debian = (key != "" ? 4 : 0) + (uri ~ /\/debian(\/|$)/ ? 2 : 0)
    if (!(suite in codename) && !((suite in nickname) && of_debian)) return
    score = 2 + 2 * of_debian + (suite == "bookworm" ? 1 : 0)
    if (score > best) { best = score; mirror = uri }
}

function first_mirror_in(uri,    path, line, words) {
    path = uri
    sub(/^mirror\+file:(\/\/)?/, "", path)
    uri = ""
    while (uri == "" && (getline line < path) > 0)
        if (line !~ /^[ \t]*(#|$)/) { split(line, words, " "); uri = words[1] }
    close(path)
    return uri
}
