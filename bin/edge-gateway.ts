#!/usr/bin/env node
import { ON_DEMAND } from "../lib/cli/commands.ts";
import { handleEarlySignals } from "../lib/cli/early_signals.ts";

const words = process.argv.slice(2);
handleEarlySignals(words);
const { main } = await ON_DEMAND.main();
process.exitCode = await main(words);
