/**
 * Looks at a page as those do who cannot see it well: names of what can be used, order of headings, contrast as WCAG
 * 2.2 reckons it, and whether all of it fits the window's width. Gives what is wrong, each in a line; nothing is
 * changed. Its text is evaluated in the page.
 */
function look() {
  const faults = [];
  const visible = (element) => {
    const { width, height } = element.getBoundingClientRect();
    return width > 0 && height > 0 && element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  };
  const words = (element) => {
    const { id } = element;
    const text = element.textContent.trim().slice(0, 30);
    return (
      `<${element.tagName.toLowerCase()}${id === "" ? "" : ` id="${id}"`}` +
      `${element.getAttribute("class") === null ? "" : ` class="${element.getAttribute("class")}"`}>${text}`
    );
  };
  const named = (ids) =>
    (ids ?? "")
      .split(/\s+/)
      .map((id) => document.getElementById(id)?.textContent.trim() ?? "")
      .join(" ")
      .trim();
  const nameOf = (element) => {
    const labels =
      "labels" in element ? [...(element.labels ?? [])].map((label) => label.textContent.trim()).join(" ") : "";
    const own = element.matches("input, select, textarea") ? "" : element.textContent.trim();
    return (
      named(element.getAttribute("aria-labelledby")) ||
      (element.getAttribute("aria-label") ?? "").trim() ||
      labels ||
      own ||
      (element.querySelector("svg > title")?.textContent ?? "")
    );
  };
  if (document.documentElement.lang === "") faults.push("the document says no language");
  if (document.title.trim() === "") faults.push("the document has no title");
  const headings = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(visible);
  if (headings.filter(({ tagName }) => tagName === "H1").length !== 1)
    faults.push(`${headings.filter(({ tagName }) => tagName === "H1").length} headings h1 instead of one`);
  headings.reduce((last, heading) => {
    const level = Number(heading.tagName[1]);
    if (level > last + 1) faults.push(`h${level} follows h${last}: ${words(heading)}`);
    return level;
  }, 0);
  if (document.querySelectorAll("main").length !== 1) faults.push("there is not one main");
  for (const element of document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex], [role=img], [role=button]",
  )) {
    if (!visible(element) || (element instanceof HTMLInputElement && element.type === "hidden")) continue;
    if (nameOf(element) === "") faults.push(`has no name: ${words(element)}`);
    if (Number(element.getAttribute("tabindex")) > 0) faults.push(`is out of the order of tabs: ${words(element)}`);
  }
  for (const image of document.querySelectorAll("img:not([alt])")) faults.push(`has no alt: ${words(image)}`);
  for (const cell of document.querySelectorAll("table"))
    if (visible(cell) && cell.querySelector("th") === null) faults.push(`has no headers: ${words(cell)}`);
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i)))
    faults.push(`two elements have the id "${id}"`);
  for (const element of document.querySelectorAll(
    "[aria-labelledby], [aria-describedby], [aria-controls], label[for]",
  )) {
    for (const name of ["aria-labelledby", "aria-describedby", "for"]) {
      for (const id of (element.getAttribute(name) ?? "").split(/\s+/).filter((each) => each !== "")) {
        if (document.getElementById(id) === null)
          faults.push(`${name} names "${id}", which is not there: ${words(element)}`);
      }
    }
  }
  /** Red, green, blue 0–255, alpha 0–1. */
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parsed = new Map();
  const colour = (text) => {
    let found = parsed.get(text);
    if (found === undefined) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      parsed.set(text, (found = [r, g, b, a / 255]));
    }
    return found;
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const luminance = (rgb) => {
    const [r, g, b] = rgb
      .slice(0, 3)
      .map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (light + 0.05) / (dark + 0.05);
  };
  const behind = (element) => {
    if (element === null) return colour("Canvas");
    const own = colour(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(element.parentElement));
  };
  const opacity = (element) =>
    element === null ? 1 : Number(getComputedStyle(element).opacity) * opacity(element.parentElement);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const told = new Set();
  for (let node = texts.nextNode(); node !== null; node = texts.nextNode()) {
    const element = node.parentElement;
    if (
      node.textContent.trim() === "" ||
      !visible(element) ||
      element.closest("[aria-hidden=true], :disabled, script, style, noscript, title, .visually-hidden") !== null
    )
      continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const ink = colour(element instanceof SVGElement ? style.fill : style.color);
    const ratio = contrast(over([ink[0], ink[1], ink[2], ink[3] * opacity(element)], ground), ground);
    const size = Number.parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const fault = `contrast ${ratio.toFixed(2)} below ${needed}: ${words(element)}`;
    if (ratio < needed && !told.has(fault)) {
      told.add(fault);
      faults.push(fault);
    }
  }
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) faults.push(`is ${scrollWidth} pixels wide in a window of ${clientWidth}`);
  return faults;
}
