"""Creates a Llama model with half a million random weights and a byte-level tokenizer.

usage: tiny_model.py DIRECTORY

Requires torch, transformers and tokenizers, which vLLM depends on.
"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

directory = sys.argv[1]
SPECIAL_TOKENS = ["<pad>", "<s>", "</s>"]

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
byte_level_model = models.BPE(vocab={token: index for index, token in enumerate(SPECIAL_TOKENS + alphabet)}, merges=[])
tokenizer = Tokenizer(byte_level_model)
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
pretrained_tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
pretrained_tokenizer.chat_template = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"

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
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
pretrained_tokenizer.save_pretrained(directory)
