"""What a user of the openai package does, against the gateway named by the first argument."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
question = [{"role": "user", "content": "Why do horses sleep standing?"}]

models = {model.id for model in client.models.list()}
assert {"chat", "summarise", "qwen", "support-bot"} <= models, models

whole = client.chat.completions.create(model="chat", messages=question, max_tokens=8)
assert whole.model == "chat", whole
assert whole.usage.completion_tokens == 8, whole.usage

text, usage = "", None
stream = client.chat.completions.create(
    model="support-bot", messages=question, max_tokens=8, stream=True, stream_options={"include_usage": True}
)
for chunk in stream:
    assert chunk.model == "support-bot", chunk
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
    usage = chunk.usage or usage
assert text and usage.completion_tokens == 8, (text, usage)

try:
    client.chat.completions.create(model="nobody-serves-this", messages=question)
    raise SystemExit("an unknown model was answered")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error

print("ok")
