/* text_chat: each chat template against what the Jinja template of its model family gives for the
 * same conversation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/text.h"

/* White space around contents shows which templates trim. */
static const struct weft_message talk[] = {
    {"system", "Be brief."}, {"user", "Hi "}, {"assistant", " Hello!"}, {"user", "Who are you?"}};

static const struct {
    const char *name, *bos, *eos, *with_system, *without_system;
} cases[] = {
    {"chatml", "<s>", "<|im_end|>",
     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi "
     "<|im_end|>\n<|im_start|>assistant\n Hello!<|im_end|>\n"
     "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n",
     "<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\n "
     "Hello!<|im_end|>\n<|im_start|>user\nWho are you?<|im_end|>\n"
     "<|im_start|>assistant\n"},
    {"llama2", "<s>", "</s>",
     "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello! </s><s>[INST] Who are you? "
     "[/INST]",
     "<s>[INST] Hi [/INST] Hello! </s><s>[INST] Who are you? [/INST]"},
    {"llama3", "<|begin_of_text|>", "<|eot_id|>",
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_"
     "header_id|>\n\nHello!<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nWho are "
     "you?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nWho are "
     "you?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"mistral", "<s>", "</s>",
     "<s> [INST] Be brief.\n\nHi  [/INST]  Hello!</s> [INST] Who are you? [/INST]",
     "<s> [INST] Hi  [/INST]  Hello!</s> [INST] Who are you? [/INST]"},
    {"mistral-v0.1", "<s>", "</s>",
     "<s>[INST] Be brief.\n\nHi  [/INST] Hello!</s> [INST] Who are you? [/INST]",
     "<s>[INST] Hi  [/INST] Hello!</s> [INST] Who are you? [/INST]"},
    {"mistral-v0.2", "<s>", "</s>",
     "<s>[INST] Be brief.\n\nHi  [/INST] Hello!</s>[INST] Who are you? [/INST]",
     "<s>[INST] Hi  [/INST] Hello!</s>[INST] Who are you? [/INST]"},
    {"mistral-v3", "<s>", "</s>",
     "<s>[INST] Hi [/INST] Hello!</s>[INST] Be brief.\n\nWho are you?[/INST]",
     "<s>[INST] Hi [/INST] Hello!</s>[INST] Who are you?[/INST]"},
    {"mistral-tekken", "<s>", "</s>",
     "<s>[INST]Hi [/INST] Hello!</s>[INST]Be brief.\n\nWho are you?[/INST]",
     "<s>[INST]Hi [/INST] Hello!</s>[INST]Who are you?[/INST]"},
    {"mistral-v7", "<s>", "</s>",
     "<s>[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] Hi [/INST]  Hello!</s>[INST] Who are "
     "you?[/INST]",
     "<s>[INST] Hi [/INST]  Hello!</s>[INST] Who are you?[/INST]"},
    {"zephyr", "<s>", "</s>",
     "<|system|>\nBe brief.</s>\n<|user|>\nHi </s>\n<|assistant|>\n Hello!</s>\n<|user|>\nWho are "
     "you?</s>\n<|assistant|>\n",
     "<|user|>\nHi </s>\n<|assistant|>\n Hello!</s>\n<|user|>\nWho are you?</s>\n<|assistant|>\n"},
    {"vicuna", "<s>", "</s>",
     "Be brief. USER: Hi ASSISTANT: Hello!</s> USER: Who are you? ASSISTANT:",
     "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
     "helpful, detailed, and "
     "polite answers to the user's questions. USER: Hi ASSISTANT: Hello!</s> USER: Who are you? "
     "ASSISTANT:"},
    {"vicuna-v1.1", "<s>", "</s>",
     "Be brief.\n\nUSER: Hi \nASSISTANT:  Hello!</s>\nUSER: Who are you?\nASSISTANT:",
     "USER: Hi \nASSISTANT:  Hello!</s>\nUSER: Who are you?\nASSISTANT:"},
    {"deepseek", "<B>", "<E>",
     "<B>Be brief.\n\nUser: Hi \n\nAssistant:  Hello!<E>User: Who are you?\n\nAssistant:",
     "<B>User: Hi \n\nAssistant:  Hello!<E>User: Who are you?\n\nAssistant:"},
    {"deepseek3", "<B>", "<E>",
     "<B>Be brief.<\xef\xbd\x9cUser\xef\xbd\x9c>Hi <\xef\xbd\x9c"
     "Assistant\xef\xbd\x9c> Hello!<E>"
     "<\xef\xbd\x9cUser\xef\xbd\x9c>Who are you?<\xef\xbd\x9c"
     "Assistant\xef\xbd\x9c>",
     "<B><\xef\xbd\x9cUser\xef\xbd\x9c>Hi <\xef\xbd\x9c"
     "Assistant\xef\xbd\x9c> Hello!<E>"
     "<\xef\xbd\x9cUser\xef\xbd\x9c>Who are you?<\xef\xbd\x9c"
     "Assistant\xef\xbd\x9c>"},
    {"gemma", "<bos>", "<eos>",
     "<bos><start_of_turn>user\nBe "
     "brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
     "<start_of_turn>user\nWho are you?<end_of_turn>\n<start_of_turn>model\n",
     "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
     "<start_of_turn>user\nWho are you?<end_of_turn>\n<start_of_turn>model\n"},
};

static void expect(const char *name, const char *bos, const char *eos,
                   const struct weft_message *msgs, size_t n, const char *expected)
{
    wf_chat_text t;
    assert_int_equal(wf_chat_render(name, bos, eos, msgs, n, &t), WEFT_OK);
    assert_string_equal(t.text, expected);
    assert_int_equal(t.has_bos, !strncmp(expected, bos, strlen(bos)));
    wf_chat_text_free(&t);
}

static void renderings(void **state)
{
    (void)state;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        expect(cases[i].name, cases[i].bos, cases[i].eos, talk, 4, cases[i].with_system);
        expect(cases[i].name, cases[i].bos, cases[i].eos, talk + 1, 3, cases[i].without_system);
    }
}

static void names(void **state)
{
    (void)state;
    size_t n = 0;
    for (; wf_chat_names()[n]; n++) {
        size_t i = 0;
        while (i < WF_LEN(cases) && strcmp(cases[i].name, wf_chat_names()[n])) i++;
        if (i == WF_LEN(cases)) fail_msg("%s is not tested", wf_chat_names()[n]);
    }
    assert_int_equal(n, WF_LEN(cases));
}

/* Results of tools, as the templates of Qwen 2.5 and Llama 3.1 write them (the latter would quote a text as JSON). */
static void tools(void **state)
{
    (void)state;
    static const struct weft_message calls[] = {{"user", "Hi"}, {"assistant", "Hello!"}, {"tool", "42"}, {"tool", "43"}, {"user", "Bye"}};
    expect("chatml", "<s>", "", calls, 5,
           "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\n<tool_response>\n42\n</tool_response>\n"
           "<tool_response>\n43\n</tool_response><|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n");
    expect("llama3", "<B>", "", calls, 4,
           "<B><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n42<|eot_id|>"
           "<|start_header_id|>ipython<|end_header_id|>\n\n43<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
}

/* A model without BOS: nothing is written for it, and the caller is told so. */
static void no_bos(void **state)
{
    (void)state;
    wf_chat_text t;
    assert_int_equal(wf_chat_render("llama2", NULL, NULL, talk + 1, 1, &t), WEFT_OK);
    assert_string_equal(t.text, "[INST] Hi [/INST]");
    assert_false(t.has_bos);
    wf_chat_text_free(&t);
}

/* The distinguishing lines of the templates as the models' files have them. */
static const struct {
    const char *name, *text;
} templates[] = {
    {"chatml", "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + "
               "'<|im_end|>' + '\n'}}{% endfor %}"},
    {"llama2", "{% set content = '<<SYS>>\\n' + system_message %}{{ bos_token + '[INST] ' + "
               "content.strip() + ' [/INST]' }}"},
    {"llama3",
     "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' %}"},
    {"mistral", "{{- bos_token }}{{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + "
                "' [/INST]' }}"},
    {"mistral-v0.1", "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ "
                     "message['content'] + eos_token + ' ' }}"},
    {"mistral-v0.2", "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ "
                     "message['content'] + eos_token}}"},
    {"mistral-v3",
     "{{- \"[AVAILABLE_TOOLS] [\" }}{{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}"},
    {"mistral-tekken",
     "{{- \"[AVAILABLE_TOOLS][\" }}{{- \"[INST]\" + message[\"content\"] + \"[/INST]\" }}"},
    {"mistral-v7", "{{- '[INST] ' + message['content'] + '[/INST]' }}{{- '[SYSTEM_PROMPT] ' + "
                   "message['content'] }}"},
    {"zephyr", "{{ '<|user|>\n' + message['content'] + eos_token }}{{ '<|assistant|>\n'  + "
               "message['content'] + eos_token }}"},
    {"vicuna", "{{ ' USER: ' + message['content'].strip() }}{{ ' ASSISTANT: ' + "
               "message['content'].strip() + eos_token }}"},
    {"vicuna-v1.1", "{{-'USER: ' + message['content'] + '\n'-}}{{-'ASSISTANT: ' + "
                    "message['content'] + '</s>\n' -}}"},
    {"deepseek", "{{ 'User: ' + message['content'] + '\n\n' }}{{ 'Assistant: ' + "
                 "message['content'] + eos_token }}"},
    {"deepseek3", "{{'<\xef\xbd\x9cUser\xef\xbd\x9c>' + message['content']}}{{'<\xef\xbd\x9c"
                  "Assistant\xef\xbd\x9c>'}}"},
    {"gemma",
     "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"},
};

static void recognition(void **state)
{
    (void)state;
    for (size_t i = 0; i < WF_LEN(templates); i++) {
        const char *name = wf_chat_recognise(templates[i].text, strlen(templates[i].text));
        assert_non_null(name);
        assert_string_equal(name, templates[i].name);
    }
    static const char *const others[] = {"",
                                         "{{ messages }}",
                                         "<|user|>\n...<|end|>\n<|assistant|>",
                                         "<|im_start|>user<|im_sep|>",
                                         "SYSTEM: USER: ASSISTANT: ",
                                         "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>"};
    for (size_t i = 0; i < WF_LEN(others); i++)
        assert_null(wf_chat_recognise(others[i], strlen(others[i])));
    assert_null(wf_chat_recognise(NULL, 0));
    assert_null(wf_chat_recognise("<start_of_turn>", 14)); /* the length counts, not a NUL */
}

static void expect_error(weft_status status, const char *word, const char *name,
                         const struct weft_message *msgs, size_t n)
{
    wf_chat_text t;
    assert_int_equal(wf_chat_render(name, "<s>", "</s>", msgs, n, &t), status);
    assert_null(t.text);
    if (!strstr(wf_error(), word)) fail_msg("no '%s' in: %s", word, wf_error());
}

static void errors(void **state)
{
    (void)state;
    const struct weft_message tool[] = {{"user", "Hi"}, {"tool", "42"}}, king[] = {{"user", "Hi"}, {"king", "42"}},
                              late[] = {{"user", "Hi"}, {"system", "S"}};
    const struct weft_message alone[] = {{"system", "S"}}, no_content[] = {{"user", NULL}},
                              no_role[] = {{NULL, "Hi"}};
    expect_error(WEFT_ERR_UNSUPPORTED, "--chat-template", NULL, talk, 4);
    expect_error(WEFT_ERR_UNSUPPORTED, "chatml", NULL, talk, 4);
    expect_error(WEFT_ERR_UNSUPPORTED, "klingon", "klingon", talk, 4);
    expect_error(WEFT_ERR_UNSUPPORTED, "gemma", "klingon", talk, 4);
    expect_error(WEFT_ERR_ARG, "'king'", "chatml", king, 2);
    expect_error(WEFT_ERR_UNSUPPORTED, "gemma", "gemma", tool, 2);
    expect_error(WEFT_ERR_ARG, "system", "llama2", late, 2);
    expect_error(WEFT_ERR_ARG, "user", "chatml", alone, 1);
    expect_error(WEFT_ERR_ARG, "user", "chatml", NULL, 0);
    expect_error(WEFT_ERR_ARG, "content", "chatml", no_content, 1);
    expect_error(WEFT_ERR_ARG, "role", "chatml", no_role, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renderings),  cmocka_unit_test(names),  cmocka_unit_test(no_bos),
        cmocka_unit_test(recognition), cmocka_unit_test(tools), cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
