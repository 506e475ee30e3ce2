/**
 * Loads modules of the program that the start did not need.
 */

/** `load` imports them. Rejects with what to do when the files of the program have been replaced since it started. */
export async function loaded<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    const { message } = error as Error;
    throw new Error(`a part of the program cannot be loaded; if its files were replaced since it started, restart it: ${message}`, { cause: error });
  }
}
