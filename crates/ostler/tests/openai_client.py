"""Sends requests with the openai package to the gateway whose URL is the first argument."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
messages = [{"role": "user", "content": "Why do horses sleep standing?"}]

models = {model.id for model in client.models.list()}
assert {"chat", "summarise", "qwen", "support-bot"} <= models, models

completion = client.chat.completions.create(model="chat", messages=messages, max_tokens=8)
assert completion.model == "chat", completion
assert completion.usage.completion_tokens == 8, completion.usage

text, usage = "", None
stream = client.chat.completions.create(
    model="support-bot", messages=messages, max_tokens=8, stream=True, stream_options={"include_usage": True}
)
for chunk in stream:
    assert chunk.model == "support-bot", chunk
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
    usage = chunk.usage or usage
assert text and usage.completion_tokens == 8, (text, usage)

try:
    client.chat.completions.create(model="unknown-model", messages=messages)
    raise SystemExit("the request with an unknown model succeeded")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error

print("ok")
