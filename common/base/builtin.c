#include "common/base/builtin.h"

enum ht_status ht_builtin_open(const struct ht_builtin *file, struct ht_error *err, struct ht_doc **out)
{
    return ht_doc_parse(file->text, (size_t)(file->end - file->text), file->name, err, out);
}
