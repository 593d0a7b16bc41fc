// Written by `stasis hook install opencode`; `stasis hook uninstall opencode` takes it away.
// Asks for a checkpoint of the workspace before every prompt, shell command and edit, and never blocks any of them.
import { spawn } from "node:child_process";

const program = "@PROGRAM@";
const tools = ["bash", "shell", "edit", "write", "patch", "apply_patch", "multiedit"];
const limit = 25_000;
const longest = 4_000;

// Resolves when the child ended, or was killed at the limit: a child that cannot be reaped must not hold the agent.
function checkpoint(directory, about) {
  return new Promise((done) => {
    try {
      const child = spawn(program, ["hook", "run", "opencode"], {
        cwd: directory,
        stdio: ["pipe", "ignore", "ignore"],
      });
      const timer = setTimeout(() => {
        child.kill("SIGKILL");
        child.stdin.destroy();
        child.unref();
        done();
      }, limit);
      const end = () => {
        clearTimeout(timer);
        done();
      };
      child.on("error", end);
      child.on("exit", end);
      child.stdin.on("error", () => {});
      child.stdin.end(JSON.stringify({ cwd: directory, ...about }));
    } catch {
      done();
    }
  });
}

function cut(text) {
  return typeof text === "string" ? text.slice(0, longest) : undefined;
}

// What is kept with the checkpoint, in the words that the other agents use.
function ofPrompt(session, parts) {
  const text = Array.isArray(parts) ? parts.find((part) => part?.type === "text")?.text : parts;
  return { hook_event_name: "UserPromptSubmit", session_id: session, prompt: cut(text) };
}

function ofTool(session, tool, input) {
  const tool_input = { command: cut(input?.command), file_path: cut(input?.filePath ?? input?.path) };
  return { hook_event_name: "PreToolUse", session_id: session, tool_name: tool, tool_input };
}

async function register(domain, name, callback) {
  try {
    await domain?.hook?.(name, callback);
  } catch {
    // This version has no such hook.
  }
}

export default {
  id: "stasis",

  // OpenCode 1
  async server({ directory }) {
    return {
      "chat.message": async (input, output) => {
        await checkpoint(directory, ofPrompt(input?.sessionID, output?.parts));
      },
      "tool.execute.before": async (input, output) => {
        if (!tools.includes(input?.tool)) return;
        await checkpoint(directory, ofTool(input.sessionID, input.tool, output?.args));
      },
    };
  },

  // OpenCode 2
  async setup(context) {
    const directory = async (event) => {
      try {
        const session = await context.session.get({ sessionID: event.sessionID });
        return session.location.directory;
      } catch {
        return context.location?.directory;
      }
    };
    await register(context.session, "prompt", async (event) => {
      await checkpoint(await directory(event), ofPrompt(event?.sessionID, event?.prompt?.text));
    });
    await register(context.tool, "execute.before", async (event) => {
      if (!tools.includes(event?.tool)) return;
      await checkpoint(await directory(event), ofTool(event?.sessionID, event.tool, event?.input));
    });
  },
};
