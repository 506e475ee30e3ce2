/** The suite, with a setup file that writes down what each spec reaches. */
import suite from "../vitest.config.ts";

const { test } = suite;
const setupFiles = [test!.setupFiles ?? [], "spec/mutants/collect.ts"].flat();
export default { ...suite, test: { ...test, setupFiles } };
