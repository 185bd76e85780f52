/* gguf_bad: malformed files. Each must give an error whose message names what is wrong, and leave
 * nothing behind; a good file must open afterwards. Most cases are one row of a table: a builder,
 * its argument, and a piece of the message. */
#include "support/gguf_check.h"
#include "support/suite.h"

/* ---- builders -------------------------------------------------------------------------------- */

static void n_bytes(bytes *b, uint64_t n)
{
    bytes_put(b, "GGUF\3\0\0\0", n);
}

static void magic_zip(bytes *b, uint64_t arg)
{
    gguf_good(b);
    memcpy(b->data, "PK\3\4", 4);
}

static void magic_swapped(bytes *b, uint64_t arg)
{
    gguf_good(b);
    memcpy(b->data, "FUGG", 4);
}

static void version(bytes *b, uint64_t v)
{
    gguf_good(b);
    memcpy(b->data + 4, &v, 4);
}

static void n_tensors(bytes *b, uint64_t n)
{
    gguf_good(b);
    memcpy(b->data + 8, &n, 8);
}

static void n_kv(bytes *b, uint64_t n)
{
    gguf_good(b);
    memcpy(b->data + 16, &n, 8);
}

/* Files of one metadata entry; 64 bytes of zeros follow what is wrong. */
static void key_length(bytes *b, uint64_t n)
{
    gguf_head(b, 3, 0, 1);
    bytes_u64(b, n);
    bytes_zero(b, 64);
}

static void key_long(bytes *b, uint64_t n)
{
    key_length(b, n);
    for (uint64_t i = 0; i < n; i++) bytes_put(b, "k", 1);
    bytes_u32(b, WF_GGUF_U32);
    bytes_u32(b, 0);
}

static void key_nul(bytes *b, uint64_t arg)
{
    gguf_head(b, 3, 0, 1);
    bytes_u64(b, 3);
    bytes_put(b, "k\0k", 3);
    bytes_u32(b, WF_GGUF_U32);
    bytes_u32(b, 0);
}

static void value_type(bytes *b, uint64_t type)
{
    gguf_head(b, 3, 0, 1);
    gguf_key(b, "the.key", (uint32_t)type);
    bytes_zero(b, 64);
}

static void value_missing(bytes *b, uint64_t type)
{
    gguf_head(b, 3, 0, 1);
    gguf_key(b, "the.key", (uint32_t)type);
}

static void string_length(bytes *b, uint64_t n)
{
    gguf_head(b, 3, 0, 1);
    gguf_key(b, "the.key", WF_GGUF_STRING);
    bytes_u64(b, n);
    bytes_zero(b, 64);
}

static void bool_value(bytes *b, uint64_t v)
{
    gguf_head(b, 3, 0, 1);
    gguf_key(b, "the.key", WF_GGUF_BOOL);
    bytes_u8(b, (uint8_t)v);
}

static void bool_item(bytes *b, uint64_t v)
{
    gguf_head(b, 3, 0, 1);
    gguf_array(b, "the.key", WF_GGUF_BOOL, 3);
    bytes_u8(b, 0);
    bytes_u8(b, 1);
    bytes_u8(b, (uint8_t)v);
}

static void item_type(bytes *b, uint64_t type)
{
    gguf_head(b, 3, 0, 1);
    gguf_array(b, "the.key", (uint32_t)type, 1);
    bytes_zero(b, 64);
}

static void count_u8(bytes *b, uint64_t n)
{
    gguf_head(b, 3, 0, 1);
    gguf_array(b, "the.key", WF_GGUF_U8, n);
    bytes_zero(b, 64);
}

static void count_f64(bytes *b, uint64_t n)
{
    gguf_head(b, 3, 0, 1);
    gguf_array(b, "the.key", WF_GGUF_F64, n);
    bytes_zero(b, 64);
}

static void count_strings(bytes *b, uint64_t n)
{
    gguf_head(b, 3, 0, 1);
    gguf_array(b, "the.key", WF_GGUF_STRING, n);
    bytes_zero(b, 64);
}

static void item_length(bytes *b, uint64_t n)
{
    gguf_head(b, 3, 0, 1);
    gguf_array(b, "the.key", WF_GGUF_STRING, 2);
    bytes_str(b, "fine");
    bytes_u64(b, n);
    bytes_zero(b, 64);
}

static void key_twice(bytes *b, uint64_t arg)
{
    gguf_head(b, 3, 0, 3);
    gguf_kv_u32(b, "the.key", 1);
    gguf_kv_u32(b, "another.key", 1);
    gguf_kv_str(b, "the.key", "");
}

static void key_control(bytes *b, uint64_t type)
{
    gguf_head(b, 3, 0, 1);
    gguf_key(b, "the\033[2Jkey", (uint32_t)type);
}

static void alignment(bytes *b, uint64_t v)
{
    gguf_head(b, 3, 0, 1);
    gguf_kv_u32(b, "general.alignment", (uint32_t)v);
}

static void alignment_type(bytes *b, uint64_t type)
{
    gguf_head(b, 3, 0, 1);
    gguf_key(b, "general.alignment", (uint32_t)type);
    bytes_u64(b, type == WF_GGUF_STRING ? 0 : 32);
}

static void split_count(bytes *b, uint64_t n)
{
    gguf_head(b, 3, 0, 1);
    gguf_key(b, "split.count", WF_GGUF_U16);
    bytes_put(b, &n, 2);
}

static void split_type(bytes *b, uint64_t arg)
{
    gguf_head(b, 3, 0, 1);
    gguf_kv_str(b, "split.count", "3");
}

/* Files of tensors. */
static void finish(bytes *b, size_t data)
{
    bytes_align(b, 32);
    bytes_zero(b, data);
}

static void n_dims(bytes *b, uint64_t n)
{
    gguf_head(b, 3, 1, 0);
    bytes_str(b, "the.tensor");
    bytes_u32(b, (uint32_t)n);
    for (int i = 0; i < 8; i++) bytes_u64(b, 1);
    finish(b, 64);
}

static void dim0(bytes *b, uint64_t d)
{
    gguf_head(b, 3, 1, 0);
    gguf_tensor(b, "the.tensor", 2, (uint64_t[]){d, 1}, 0, 0);
    finish(b, 64);
}

static void dim1(bytes *b, uint64_t d)
{
    gguf_head(b, 3, 1, 0);
    gguf_tensor(b, "the.tensor", 2, (uint64_t[]){4, d}, 0, 0);
    finish(b, 64);
}

static void dims_all(bytes *b, uint64_t d)
{
    gguf_head(b, 3, 1, 0);
    gguf_tensor(b, "the.tensor", 4, (uint64_t[]){d, d, d, d}, 0, 0);
    finish(b, 64);
}

static void tensor_type(bytes *b, uint64_t type)
{
    gguf_head(b, 3, 1, 0);
    gguf_tensor(b, "the.tensor", 1, (uint64_t[]){256}, (uint32_t)type, 0);
    finish(b, 2048);
}

static void row_q4_0(bytes *b, uint64_t k)
{
    gguf_head(b, 3, 1, 0);
    gguf_tensor(b, "the.tensor", 2, (uint64_t[]){k, 32}, 2, 0);
    finish(b, 65536);
}

static void row_q6_k(bytes *b, uint64_t k)
{
    gguf_head(b, 3, 1, 0);
    gguf_tensor(b, "the.tensor", 2, (uint64_t[]){k, 256}, 14, 0);
    finish(b, 65536);
}

static void tensor_twice(bytes *b, uint64_t arg)
{
    gguf_head(b, 3, 3, 0);
    gguf_tensor(b, "the.tensor", 1, (uint64_t[]){1}, 0, 0);
    gguf_tensor(b, "another.tensor", 1, (uint64_t[]){1}, 0, 32);
    gguf_tensor(b, "the.tensor", 1, (uint64_t[]){1}, 0, 64);
    finish(b, 96);
}

static void tensor_name(bytes *b, uint64_t len)
{
    char name[100] = "";
    memset(name, 'n', len);
    gguf_head(b, 3, 1, 0);
    gguf_tensor(b, name, 1, (uint64_t[]){1}, 0, 0);
    finish(b, 4);
}

static void tensor_name_length(bytes *b, uint64_t len)
{
    gguf_head(b, 3, 1, 0);
    bytes_u64(b, len);
    finish(b, 64);
}

static void tensor_name_nul(bytes *b, uint64_t arg)
{
    gguf_head(b, 3, 1, 0);
    bytes_u64(b, 5);
    bytes_put(b, "te\0no", 5);
    bytes_u32(b, 1);
    bytes_u64(b, 1);
    finish(b, 64);
}

static void offset(bytes *b, uint64_t o)
{
    gguf_head(b, 3, 1, 0);
    gguf_tensor(b, "the.tensor", 1, (uint64_t[]){16}, 0, o);
    finish(b, 128);
}

/* first [0, 100), second at the given offset */
static void second_offset(bytes *b, uint64_t o)
{
    gguf_head(b, 3, 3, 0);
    gguf_tensor(b, "second.tensor", 1, (uint64_t[]){8}, 0, o);
    gguf_tensor(b, "first.tensor", 1, (uint64_t[]){25}, 0, 0);
    gguf_tensor(b, "third.tensor", 1, (uint64_t[]){8}, 0, 256);
    finish(b, 512);
}

static void data_missing(bytes *b, uint64_t n)
{
    gguf_head(b, 3, 1, 0);
    gguf_tensor(b, "the.tensor", 1, (uint64_t[]){16}, 0, 0);
    finish(b, 64);
    b->len -= n;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define P(n) ((uint64_t)1 << (n))
#define F    WEFT_ERR_FORMAT
#define U    WEFT_ERR_UNSUPPORTED

static const struct {
    void (*build)(bytes *b, uint64_t arg);
    uint64_t arg;
    weft_status status; /* WEFT_OK: the neighbour of a bad case, which must open */
    const char *message;
} cases[] = {
    {n_bytes, 0, F, "empty"},
    {n_bytes, 1, F, "magic"},
    {n_bytes, 3, F, "magic"},
    {n_bytes, 4, F, "version"},
    {n_bytes, 8, F, "number of tensors"},
    {magic_zip, 0, F, "not a GGUF file: it begins with bytes 50 4b 03 04"},
    {magic_swapped, 0, F, "little-endian"},
    {version, 0, F, "version 0;"},
    {version, 1, F, "version 1;"},
    {version, 2, WEFT_OK, ""},
    {version, 4, F, "version 4;"},
    {version, 99, F, "version 99;"},
    {version, 0x03000000, F, "big-endian"},
    {n_tensors, 0x7FFFFFFF, F, "number of tensors is 2147483647"},
    {n_tensors, P(32), F, "number of tensors is 4294967296"},
    {n_tensors, P(63), F, "number of tensors is 9223372036854775808"},
    {n_tensors, UINT64_MAX, F, "number of tensors is 18446744073709551615"},
    {n_tensors, 3, F, "tensor"},
    {n_kv, 0x7FFFFFFF, F, "number of metadata entries is 2147483647"},
    {n_kv, P(32), F, "number of metadata entries is 4294967296"},
    {n_kv, P(63), F, "number of metadata entries is 9223372036854775808"},
    {n_kv, UINT64_MAX, F, "number of metadata entries is 18446744073709551615"},
    {n_kv, 6, F, "name of a tensor is empty"},
    {key_length, 0, F, "metadata key is empty"},
    {key_length, 65, F, "metadata entry 0 of 1: its key needs 65 bytes"},
    {key_length, P(31), F, "metadata entry 0 of 1: its key needs 2147483648 bytes"},
    {key_length, P(63), F, "metadata entry 0 of 1: its key"},
    {key_length, UINT64_MAX, F, "metadata entry 0 of 1: its key"},
    {key_long, 65536, F, "65536 bytes, more than 65535"},
    {key_nul, 0, F, "metadata key 'k?k' contains a NUL byte"},
    {value_type, 13, F, "'the.key': value type 13"},
    {value_type, 0xFFFFFFFF, F, "'the.key': value type 4294967295"},
    {value_missing, WF_GGUF_U8, F, "'the.key': its value"},
    {value_missing, WF_GGUF_F64, F, "'the.key': its value"},
    {value_missing, WF_GGUF_STRING, F, "'the.key': its string"},
    {value_missing, WF_GGUF_ARRAY, F, "'the.key': its type"},
    {value_missing, WF_GGUF_BOOL, F, "'the.key': its value"},
    {string_length, 65, F, "'the.key': its string needs 65 bytes"},
    {string_length, P(63), F, "'the.key': its string"},
    {string_length, UINT64_MAX, F, "'the.key': its string"},
    {bool_value, 1, WEFT_OK, ""},
    {bool_value, 2, F, "'the.key': a bool is 2"},
    {bool_item, 0, WEFT_OK, ""},
    {bool_item, 255, F, "'the.key': a bool is 255"},
    {item_type, WF_GGUF_ARRAY, F, "'the.key': arrays of arrays"},
    {item_type, 13, F, "'the.key': value type 13"},
    {item_type, 0xFFFFFFFF, F, "'the.key': value type"},
    {count_u8, 64, WEFT_OK, ""},
    {count_u8, 65, F, "'the.key': an array of 65 u8"},
    {count_u8, P(63), F, "'the.key': an array of 9223372036854775808 u8"},
    {count_f64, 8, WEFT_OK, ""},
    {count_f64, 9, F, "'the.key': an array of 9 f64"},
    {count_f64, P(61), F, "'the.key': an array of 2305843009213693952 f64"},
    {count_f64, P(63), F, "'the.key': an array of"},
    {count_strings, 8, WEFT_OK, ""},
    {count_strings, 9, F, "'the.key': an array of 9 string"},
    {count_strings, P(61), F, "'the.key': an array of"},
    {count_strings, P(63), F, "'the.key': an array of"},
    {item_length, 64, WEFT_OK, ""},
    {item_length, 65, F, "'the.key': a string of its array needs 65 bytes"},
    {item_length, P(63), F, "'the.key': a string of its array"},
    {key_twice, 0, F, "metadata 'the.key' appears twice"},
    {key_control, 99, F, "'the?[2Jkey': value type 99"},
    {alignment, 0, F, "'general.alignment' is 0;"},
    {alignment, 3, F, "'general.alignment' is 3;"},
    {alignment, 4, F, "'general.alignment' is 4;"},
    {alignment, 8, WEFT_OK, ""},
    {alignment, 48, F, "'general.alignment' is 48;"},
    {alignment, P(20), WEFT_OK, ""},
    {alignment, P(21), F, "'general.alignment' is 2097152;"},
    {alignment, P(31), F, "'general.alignment' is 2147483648;"},
    {alignment_type, WF_GGUF_U64, F, "'general.alignment' is of type u64"},
    {alignment_type, WF_GGUF_I64, F, "'general.alignment' is of type i64"},
    {alignment_type, WF_GGUF_F64, F, "'general.alignment' is of type f64"},
    {alignment_type, WF_GGUF_STRING, F, "'general.alignment' is of type string"},
    {split_count, 0, WEFT_OK, ""},
    {split_count, 1, WEFT_OK, ""},
    {split_count, 2, U, "llama-gguf-split --merge"},
    {split_count, 65535, U, "split into 65535 files"},
    {split_type, 0, F, "'split.count' is of type string"},
    {n_dims, 0, F, "'the.tensor': 0 dimensions"},
    {n_dims, 5, F, "'the.tensor': 5 dimensions"},
    {n_dims, 8, F, "'the.tensor': 8 dimensions"},
    {n_dims, 0xFFFFFFFF, F, "'the.tensor': 4294967295 dimensions"},
    {dim0, 16, WEFT_OK, ""},
    {dim0, 17, F, "'the.tensor': 68 bytes at offset 0"},
    {dim0, 0, F, "'the.tensor': dimension 0 is 0"},
    {dim1, 0, F, "'the.tensor': dimension 1 is 0"},
    {dim0, P(42) + 1, F, "'the.tensor': 17592186044420 bytes at offset 0"},
    {dim0, INT64_MAX, F, "'the.tensor': its size overflows"},
    {dim0, P(62), F, "'the.tensor': its size overflows"},
    {dim0, P(63), F, "'the.tensor': its 2 dimensions overflow"},
    {dim0, UINT64_MAX, F, "'the.tensor': its 2 dimensions overflow"},
    {dim1, P(62), F, "'the.tensor': its 2 dimensions overflow"},
    {dims_all, P(16), F, "'the.tensor': its 4 dimensions overflow"},
    {dims_all, P(32), F, "'the.tensor': its 4 dimensions overflow"},
    {dims_all, P(63), F, "'the.tensor': its 4 dimensions overflow"},
    {tensor_type, 12, WEFT_OK, ""}, /* Q4_K: known, even though not readable */
    {tensor_type, 4, F, "'the.tensor': tensor type 4 (Q4_2)"},
    {tensor_type, 31, F, "'the.tensor': tensor type 31 (Q4_0_4_4)"},
    {tensor_type, 99, F, "'the.tensor': tensor type 99 (unknown)"},
    {tensor_type, 0xFFFFFFFF, F, "'the.tensor': tensor type 4294967295"},
    {row_q4_0, 32, WEFT_OK, ""},
    {row_q4_0, 33, F, "'the.tensor': rows of 33 elements are not a multiple of the Q4_0 block of 32"},
    {row_q4_0, 1, F, "'the.tensor': rows of 1 elements"},
    {row_q6_k, 128, F, "'the.tensor': rows of 128 elements are not a multiple of the Q6_K block of 256"},
    {tensor_twice, 0, F, "tensor 'the.tensor' appears twice"},
    {tensor_name, 64, WEFT_OK, ""},
    {tensor_name, 65, F, "nnn...' has 65 bytes, more than 64"},
    {tensor_name, 0, F, "name of a tensor is empty"},
    {tensor_name_length, P(31), F, "tensor 0 of 1: its name"},
    {tensor_name_length, P(63), F, "tensor 0 of 1: its name"},
    {tensor_name_nul, 0, F, "tensor 'te?no' contains a NUL byte"},
    {offset, 32, WEFT_OK, ""},
    {offset, 64, WEFT_OK, ""},
    {offset, 8, F, "'the.tensor': offset 8 is not a multiple of the alignment 32"},
    {offset, 96, F, "'the.tensor': 64 bytes at offset 96 lie outside the 128 bytes"},
    {offset, P(40), F, "'the.tensor': 64 bytes at offset 1099511627776 lie outside"},
    {offset, P(63), F, "'the.tensor': 64 bytes at offset 9223372036854775808 lie outside"},
    {offset, 0 - (uint64_t)32, F, "'the.tensor': 64 bytes at offset 18446744073709551584 lie outside"},
    {second_offset, 128, WEFT_OK, ""},
    {second_offset, 96, F, "tensors 'first.tensor' and 'second.tensor' overlap"},
    {second_offset, 0, F, "overlap"},
    {second_offset, 256, F, "overlap"},
    {data_missing, 0, WEFT_OK, ""},
    {data_missing, 1, F, "'the.tensor': 64 bytes at offset 0 lie outside the 63 bytes"},
    {data_missing, 64, F, "'the.tensor': 64 bytes at offset 0 lie outside the 0 bytes"},
    {data_missing, 65, F, "'the.tensor': 64 bytes at offset 0 lie outside the 0 bytes"},
};

static void table(void **state)
{
    int bad = 0;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        bytes b = {0};
        uint8_t *copy;
        wf_gguf *g = (wf_gguf *)&b; /* must become NULL on failure */
        cases[i].build(&b, cases[i].arg);
        weft_status s = gguf_open_copy(b.data, b.len, &g, &copy);
        const char *message = s ? wf_error() : "";
        if (s != cases[i].status || (s != WEFT_OK) != (g == NULL) ||
            !strstr(message, cases[i].message) || (s && !strstr(message, "memory.gguf: "))) {
            print_error("case %zu: %s \"%s\", expected %s \"%s\"\n", i, weft_status_name(s),
                        message, weft_status_name(cases[i].status), cases[i].message);
            bad++;
        }
        if (!s) wf_gguf_close(g);
        free(copy);
        bytes_free(&b);
    }
    gguf_good_opens();
    assert_int_equal(bad, 0);
}

SUITE(gguf_bad, NULL, NULL, CASE(table))
