/* Text from outside, such as names in files and arguments, made fit for a terminal: one line, no control characters,
   UTF-8. */
#ifndef HT_BASE_TEXT_H
#define HT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the length of the character at p, of at most `left` bytes; 0 when it is not UTF-8 (RFC 3629) or a control
   character (C0, DEL, C1, line and paragraph separators). */
size_t ht_char_bytes(const char *p, size_t left);

/* Returns true when the text has only characters that ht_char_bytes accepts. */
bool ht_is_text(const char *text);

/* Copies `text` to buf[n]; all other bytes become \n, \t or \x1b. Cuts at whole characters. Returns buf, which must not
   overlap the text. A second call changes nothing, because a text without other bytes stays as it is. */
const char *ht_shown(const char *text, char *buf, size_t n);

/* Returns the index of a text among n names; n if no name equals it. */
size_t ht_index_of(const char *text, const char *const *names, size_t n);

#endif
