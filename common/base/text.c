#include "common/base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t ht_char_bytes(const char *text, size_t left)
{
    const unsigned char *p = (const unsigned char *)text;
    if (left == 0) return 0;
    if (p[0] < 0x80) return p[0] >= ' ' && p[0] != 0x7f;
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    uint32_t c = p[0] & (0xffu >> (n + 1));
    if (p[0] < 0xc2 || p[0] > 0xf4 || n > left) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    bool bad = c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || (n == 3 && c < 0x800) || (n == 4 && c < 0x10000) ||
               c < 0xa0 || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe || c == 0xffff;
    return bad ? 0 : n;
}

bool ht_is_text(const char *text)
{
    size_t left = strlen(text);
    while (left) {
        size_t bytes = ht_char_bytes(text, left);
        if (!bytes) return false;
        text += bytes;
        left -= bytes;
    }
    return true;
}

const char *ht_shown(const char *text, char *buf, size_t n)
{
    size_t left = strlen(text), at = 0;
    while (left) {
        char escape[8];
        size_t bytes = ht_char_bytes(text, left), taken = bytes ? bytes : 1;
        const char *put = text;
        if (!bytes) {
            const char *named = strchr("n\nr\rt\t", *text);
            if (named && *text < ' ')
                bytes = (size_t)snprintf(escape, sizeof(escape), "\\%c", named[-1]);
            else
                bytes = (size_t)snprintf(escape, sizeof(escape), "\\x%02x", (unsigned)(unsigned char)*text);
            put = escape;
        }
        if (at + bytes >= n) break;
        memcpy(buf + at, put, bytes);
        at += bytes;
        text += taken;
        left -= taken;
    }
    if (n) buf[at] = '\0';
    return buf;
}

size_t ht_index_of(const char *text, const char *const *names, size_t n)
{
    size_t i = 0;
    while (i < n && strcmp(names[i], text) != 0) i++;
    return i;
}
