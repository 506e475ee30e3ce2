/** Work of known cost for the spec of `growth`. */

const text = (size: number) => "a".repeat(size);

export const linear: Readonly<Record<string, (size: number) => void>> = {
  "a loop": (size) => {
    let odd = 0;
    for (let i = 0; i < size; i++) if (i % 2 === 1) odd++;
    return void odd;
  },
  "a loop over pieces of a bounded length": (size) => {
    for (let i = 0; i < size; i++) text(64).slice(0, i % 64);
  },
  "a regular expression without backtracking": (size) => void text(size).replace(/a/g, "b"),
  "a regular expression whose backtracking is bounded": (size) => void /a{1,9}b/.test(text(size)),
  "one search": (size) => void text(size).includes("b"),
  "one join": (size) => void Array.from({ length: size }, () => "a").join(""),
};

export const exponential = (size: number) => /^(?:a+)+b/.test(text(size));

export const quadratic: Readonly<Record<string, (size: number) => void>> = {
  "a loop within a loop": (size) => {
    let odd = 0;
    for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) if (j % 2 === 1) odd++;
    return void odd;
  },
  "a callback within a callback": (size) => {
    const each = Array.from({ length: size }, (_, i) => i);
    each.forEach((i) => each.some((j) => i + j < 0));
  },
  "a regular expression that fails late from each place": (size) => void /a+b/.test(text(size)),
  "a regular expression that fails late from each place, in replace": (size) => void text(size).replace(/a*b/g, ""),
  "a regular expression that looks ahead to the end": (size) => void text(size).replace(/a(?!a*b)/g, ""),
  "a regular expression that looks back to the start": (size) => void text(size).replace(/(?<=^a*)a/g, ""),
  "two repetitions that share a text": (size) => void /^a*a*b/.test(text(size)),
  "a search to the end from each place": (size) => {
    for (let i = 0; i < size; i++) text(size).indexOf("b", i);
  },
  "a text that is cut again and again": (size) => {
    for (let rest = text(size); rest !== ""; rest = rest.slice(1));
  },
  "a split of each rest": (size) => {
    for (let rest = text(size); rest.length > 1; rest = rest.substring(1)) rest.split(",");
  },
  "a text that is joined again and again": (size) => {
    for (let [all, i] = ["", 0]; i < size; i++) all = [all, "a"].join("");
  },
  "a text that grows and is searched": (size) => {
    for (let [all, i] = ["", 0]; i < size && !all.includes("b"); i++) all += "a";
  },
  "bytes that are joined again and again": (size) => {
    let all = Buffer.alloc(0);
    for (let i = 0; i < size; i++) all = Buffer.concat([all, Buffer.from("a")]);
  },
  "an array that is copied for each element": (size) => {
    let all: number[] = [];
    for (let i = 0; i < size; i++) all = [...all, i];
  },
  "numbers that are copied for each number": (size) => {
    const all = new Int32Array(size);
    for (let i = 0; i < size; i++) all.set(all.slice(1));
  },
  "an array whose first element is removed again and again": (size) => {
    const all = Array.from({ length: size }, (_, i) => i);
    while (all.length > 0) all.shift();
  },
};
