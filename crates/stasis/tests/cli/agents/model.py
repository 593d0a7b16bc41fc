#!/usr/bin/env python3
"""A scripted model on 127.0.0.1 for coding agents, until its standard input ends.

Usage: model.py STEPS. STEPS is a JSON file with a list of shell commands, or of {"tool", "input"} for other tools. A request gets the
step whose number is the count of assistant turns in it, as a call of the agent's own tool; after the last step the model says "done". Speaks the streaming
dialects of Anthropic (Messages), Google (generateContent) and OpenAI (chat completions and responses). Prints its port, then a
line for every request.
"""
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

steps = json.load(open(sys.argv[1]))


def said(*what):
    print(json.dumps(what), flush=True)


def step(turn, tools, shell, argument="command"):
    """The call of a turn as (tool, input); nothing at the end, and in requests that are about something else."""
    if shell not in tools or turn >= len(steps):
        return None
    if isinstance(steps[turn], dict):
        return steps[turn]["tool"], steps[turn]["input"]
    return shell, {argument: steps[turn], "description": "a step"}


def events(items, name=True):
    for item in items:
        if name and "type" in item:
            yield f"event: {item['type']}\n"
        yield f"data: {json.dumps(item)}\n\n"


def anthropic(body):
    turn = sum(1 for message in body["messages"] if message["role"] == "assistant")
    tools = [tool.get("name") for tool in body.get("tools", [])]
    call = step(turn, tools, "Bash")
    said("anthropic", turn, call)
    message = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": body["model"], "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    if call is None:
        block, delta, stop = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}, "end_turn"
    else:
        block = {"type": "tool_use", "id": f"toolu_{turn}", "name": call[0], "input": {}}
        delta, stop = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}, "tool_use"
    if not body.get("stream"):
        message["content"] = [{"type": "text", "text": "done"}]
        message["stop_reason"] = "end_turn"
        return "application/json", json.dumps(message)
    return "text/event-stream", "".join(events([
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"}]))


def google(body, stream):
    turn = sum(1 for content in body.get("contents", []) if content.get("role") == "model")
    tools = [f["name"] for tool in body.get("tools", []) for f in tool.get("functionDeclarations", [])]
    call = step(turn, tools, "run_shell_command")
    said("google", turn, call)
    if call is None:
        part = {"text": "done"}
        if body.get("generationConfig", {}).get("responseMimeType") == "application/json":
            part = {"text": json.dumps({"reasoning": "x", "next_speaker": "user", "model_choice": "flash", "complexity_score": 1,
                                        "complexity_reasoning": "x"})}
    else:
        part = {"functionCall": {"name": call[0], "args": call[1]}}
    answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
              "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
    if not stream:
        return "application/json", json.dumps(answer)
    return "text/event-stream", "".join(events([answer], name=False))


def completions(body):
    turn = sum(1 for message in body["messages"] if message["role"] == "assistant")
    tools = [tool["function"]["name"] for tool in body.get("tools", [])]
    call = step(turn, tools, "bash")
    said("completions", turn, call)
    if call is None:
        delta, finish = {"role": "assistant", "content": "done"}, "stop"
    else:
        delta = {"role": "assistant", "content": None, "tool_calls": [
            {"index": 0, "id": f"call_{turn}", "type": "function", "function": {"name": call[0], "arguments": json.dumps(call[1])}}]}
        finish = "tool_calls"
    head = {"id": f"c{turn}", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
              {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}],
               "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}]
    return "text/event-stream", "".join(events(chunks, name=False)) + "data: [DONE]\n\n"


def responses(body):
    turn = sum(1 for item in body["input"] if item.get("type") in ("function_call", "custom_tool_call"))
    tools = [tool.get("name") for tool in body.get("tools", [])]
    shell = "exec_command" if "exec_command" in tools else "shell_command"
    call = step(turn, tools, shell, "cmd" if shell == "exec_command" else "command")
    said("responses", turn, call)
    if call is None:
        item = {"type": "message", "id": f"m{turn}", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": []}]}
    else:
        call[1].pop("description", None)
        item = {"type": "function_call", "id": f"f{turn}", "call_id": f"call_{turn}", "name": call[0],
                "arguments": json.dumps(call[1]), "status": "completed"}
    response = {"id": f"r{turn}", "object": "response", "status": "completed", "output": [item],
                "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": {"cached_tokens": 0},
                          "output_tokens_details": {"reasoning_tokens": 0}}}
    return "text/event-stream", "".join(events([
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response}]))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, kind, text, code=200):
        data = text.encode()
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        said("GET", self.path)
        self.answer("application/json", "{\"data\": [], \"models\": []}")

    def do_POST(self):
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            body = {}
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            reply = "application/json", "{\"input_tokens\": 1}"
        elif path.endswith("/messages"):
            reply = anthropic(body)
        elif path.endswith(":countTokens"):
            reply = "application/json", "{\"totalTokens\": 1}"
        elif "enerateContent" in path:
            reply = google(body, "stream" in path)
        elif path.endswith("/chat/completions"):
            reply = completions(body)
        elif path.endswith("/responses"):
            reply = responses(body)
        else:
            said("POST", path)
            reply = "application/json", "{}"
        self.answer(*reply)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
# A test that ends, however it ends, takes this with it.
sys.stdin.read()
