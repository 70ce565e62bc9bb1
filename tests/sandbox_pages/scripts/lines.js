((places) => {
  const seen = [];
  for (const place of document.querySelectorAll(places)) {
    const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    let top = null;
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
      for (let at = 0; at < text.length; at += 1) {
        const range = document.createRange();
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        const now = range.getBoundingClientRect().top;
        if (top === null || now > top + 1) seen.push("");
        top = now;
        seen.push(seen.pop() + text.data[at]);
      }
    }
  }
  return seen;
})
