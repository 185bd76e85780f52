#!/usr/bin/env python3
"""Makes tests/model/embeddings/NAME: tiny models with random weights that give embeddings or scores, made, saved and run by transformers and
sentence-transformers. Beside each folder's own files lies

    expected.json   texts, their token ids, and what sentence-transformers (of models that score: transformers) gives for them

Needs the packages torch, transformers, tokenizers, sentencepiece and sentence-transformers. Weights are stored in BF16 and computed with in float64.

    make_embeddings.py [NAME]...
"""
import json
import pathlib
import shutil
import sys
import tempfile

import sentencepiece
import torch
import transformers
from sentence_transformers import SentenceTransformer, models
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models as tm, normalizers, pre_tokenizers, processors

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_folders

DATA = pathlib.Path(__file__).resolve().parent / 'embeddings'
TEXTS = ['One day', 'a', 'The sun was warm, and Größe is naïve; 日本 42!', 'Tom had a big dog. ' * 4, 'unbelievable',
         'e\u0301e\u0301\u0302 \uff21\u3000\u3000x \ufb01x\u2026\u00ad\u2460 a\u0301  b']
PAIRS = [('Who wove first?', 'The spider wove first.'), ('Who wove first?', 'a'), ('dogs', 'Tom had a big dog.')]
HEADS = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2)
WORDS = 'one day the sun was warm and tom had a big dog who spider first'.split()
LETTERS = list('abcdefghijklmnopqrstuvwxyz0123456789.,;!?日本')


def fast(t, **special):
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, **special)


def around(t, first, last, ids, pair):
    t.post_processor = processors.TemplateProcessing(single=f'{first} $A {last}'.strip(), pair=pair, special_tokens=list(ids.items()))


def byte_bpe():
    """As Qwen 3's for embeddings: only an end."""
    t = Tokenizer(tm.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens([AddedToken('<s>', special=True, normalized=False), AddedToken('</s>', special=True, normalized=False)])
    around(t, '', '</s>', {'</s>': 257}, '$A </s> $B </s>')
    return fast(t, bos_token='<s>', eos_token='</s>', pad_token='</s>')


def word_piece():
    special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
    vocab = special + LETTERS + ['##' + c for c in LETTERS] + WORDS + ['##able', '##ie', 'un', '##be']
    t = Tokenizer(tm.WordPiece(vocab={w: i for i, w in enumerate(dict.fromkeys(vocab))}, unk_token='[UNK]'))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    around(t, '[CLS]', '[SEP]', {'[CLS]': 2, '[SEP]': 3}, '[CLS] $A [SEP] $B:1 [SEP]:1')
    return fast(t, unk_token='[UNK]', pad_token='[PAD]', cls_token='[CLS]', sep_token='[SEP]', mask_token='[MASK]')


def charmap():
    """A few of the replacements that SentencePiece makes by itself, as it compiles them."""
    with tempfile.TemporaryDirectory() as top:
        rules, text, out = (pathlib.Path(top) / name for name in ('rules.tsv', 'text.txt', 'out'))
        rules.write_text(''.join(f'{a}\t{b}\n' for a, b in (('FB01', '66 69'), ('FF21', '41'), ('2460', '31'), ('65 301', 'E9'), ('3000', '20'), ('AD', ''), ('2026', '2E 2E 2E'))))
        text.write_text('\n'.join(TEXTS * 20))
        sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=str(out), vocab_size=60, normalization_rule_tsv=str(rules), hard_vocab_limit=False,
                                                 minloglevel=2)
        model = sentencepiece_model_pb2.ModelProto.FromString(out.with_suffix('.model').read_bytes())
    return model.normalizer_spec.precompiled_charsmap


def unigram():
    special = ['<s>', '<pad>', '</s>', '<unk>']
    pieces = ['▁' + w for w in WORDS] + ['▁'] + LETTERS + list('ABCDEFGHIJKLMNOPQRSTUVWXYZ') + ['ing', 'er']
    t = Tokenizer(tm.Unigram([(s, 0.0) for s in special] + [(p, -2.0 - 0.1 * i) for i, p in enumerate(dict.fromkeys(pieces))], unk_id=3))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charmap()), normalizers.Replace(Regex(' {2,}'), ' ')])
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    around(t, '<s>', '</s>', {'<s>': 0, '</s>': 2}, '<s> $A </s> </s> $B </s>')
    return fast(t, bos_token='<s>', eos_token='</s>', cls_token='<s>', sep_token='</s>', unk_token='<unk>', pad_token='<pad>')


def bert(**more):
    return transformers.BertConfig(vocab_size=len(word_piece()), max_position_embeddings=128, **HEADS, **more)


def roberta(**more):
    return transformers.XLMRobertaConfig(vocab_size=len(unigram()), max_position_embeddings=130, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, **HEADS,
                                         **more)


def qwen3():
    return transformers.Qwen3Config(**dict(make_folders.SMALL, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                                           head_dim=16, tie_word_embeddings=True))


def nomic():
    return transformers.NomicBertConfig(vocab_size=len(word_piece()), max_position_embeddings=128, **HEADS)


def modern():
    return transformers.ModernBertConfig(vocab_size=len(word_piece()), max_position_embeddings=256, local_attention=16, global_attn_every_n_layers=3,
                                         **dict(HEADS, num_hidden_layers=4), pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)


# the configuration, the tokenizer, and how rows are pooled; of those that score, "rank"
MODELS = {
    'qwen3': (qwen3, byte_bpe, 'lasttoken'),
    'bert': (bert, word_piece, 'cls'),
    'xlm-roberta': (roberta, unigram, 'mean'),
    'nomic-bert': (nomic, word_piece, 'mean'),
    'modern-bert': (modern, word_piece, 'cls'),
    'xlm-roberta-rank': (lambda: roberta(num_labels=1), unigram, 'rank'),
    'bert-rank': (lambda: bert(num_labels=1), word_piece, 'rank'),
}


def scale(model):
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, dtype=torch.float64)
        value = 0.3 * noise if name.endswith('bias') else 1 + 0.1 * noise if p.ndim == 1 else noise * (0.5 if 'embed' in name else 1.2 / p.shape[-1] ** 0.5)
        p.data = value.to(torch.bfloat16).to(p.dtype)


def trim(name, tokenizer):
    """What nothing reads goes; models of one tokenizer share its files, which differ in what nothing reads."""
    for unread in ('sentence_bert_config.json', 'config_sentence_transformers.json'):
        (DATA / name / unread).unlink(missing_ok=True)
    shutil.rmtree(DATA / name / '2_Normalize', ignore_errors=True)
    first = next(n for n, (_, other, _) in MODELS.items() if other is tokenizer)
    for path in (DATA / name).glob('tokenizer*.json') if name != first else ():
        path.unlink()
        path.symlink_to(pathlib.Path('..') / first / path.name)


def make(name, seed=1):
    config, tokenizer, pooling = MODELS[name]
    torch.manual_seed(seed)
    shutil.rmtree(DATA / name, ignore_errors=True)
    kind = transformers.AutoModelForSequenceClassification if pooling == 'rank' else transformers.AutoModel
    model, t = kind.from_config(config(), attn_implementation='eager').double().eval(), tokenizer()
    scale(model)
    model.to(torch.bfloat16).save_pretrained(DATA / name)
    t.save_pretrained(DATA / name)
    expected = {'versions': {m.__name__: m.__version__ for m in (torch, transformers)}}
    if pooling == 'rank':
        with torch.no_grad():
            expected['pairs'] = [{'texts': pair, 'ids': t(*pair)['input_ids'],
                                  'scores': model.double()(**t(*pair, return_tensors='pt', return_token_type_ids='bert-' in name)).logits[0].tolist()} for pair in PAIRS]
    else:
        word = models.Transformer(str(DATA / name))
        st = SentenceTransformer(modules=[word, models.Pooling(model.config.hidden_size, pooling_mode=pooling), models.Normalize()], device='cpu').double()
        rows = st.encode(TEXTS, normalize_embeddings=True)
        expected['texts'] = [{'text': text, 'ids': t(text)['input_ids'], 'embedding': [round(float(x), 6) for x in row]} for text, row in zip(TEXTS, rows)]
        st.to(torch.bfloat16).save(str(DATA / name), create_model_card=False)
    (DATA / name / 'expected.json').write_text(json.dumps(expected, ensure_ascii=False) + '\n')
    trim(name, tokenizer)


for one in sys.argv[1:] or MODELS:
    make(one)
    print(one)
