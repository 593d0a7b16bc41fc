// Written by `stasis hook install opencode`; `stasis hook uninstall opencode` takes it away.
// Asks for a checkpoint of the workspace before every prompt and every shell command, and never disturbs either.
import { spawn } from "node:child_process";

const program = "@PROGRAM@";
const shells = ["bash", "shell"];
const patience = 30_000;

function checkpoint(directory) {
  return new Promise((done) => {
    try {
      const child = spawn(program, ["hook", "run", "opencode"], {
        cwd: directory,
        stdio: ["pipe", "ignore", "ignore"],
      });
      const timer = setTimeout(() => child.kill(), patience);
      const end = () => {
        clearTimeout(timer);
        done();
      };
      child.on("error", end);
      child.on("close", end);
      child.stdin.on("error", () => {});
      child.stdin.end(JSON.stringify({ cwd: directory }));
    } catch {
      done();
    }
  });
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
      "chat.message": async () => {
        await checkpoint(directory);
      },
      "tool.execute.before": async (input) => {
        if (shells.includes(input?.tool)) await checkpoint(directory);
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
      await checkpoint(await directory(event));
    });
    await register(context.tool, "execute.before", async (event) => {
      if (shells.includes(event?.tool)) await checkpoint(await directory(event));
    });
  },
};
