#!/usr/bin/env node
import { handleEarlySignals } from "../lib/cli/early_signals.ts";
import { main } from "../lib/cli/main.ts";

const words = process.argv.slice(2);
handleEarlySignals(words);
process.exitCode = await main(words);
