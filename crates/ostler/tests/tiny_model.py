"""A Llama of half a million random weights, with a tokenizer of single bytes.

usage: tiny_model.py FOLDER   (torch, transformers and tokenizers, which every vLLM brings)
"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

folder = sys.argv[1]
SPECIAL = ["<pad>", "<s>", "</s>"]

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytes_alone = models.BPE(vocab={piece: at for at, piece in enumerate(SPECIAL + alphabet)}, merges=[])
tokenizer = Tokenizer(bytes_alone)
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
fast.chat_template = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=320,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=2048,
    initializer_range=0.2,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
fast.save_pretrained(folder)
