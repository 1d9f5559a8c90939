// Order of search hits: the words of search_words.txt (50 to 100), then titles, guides, explanations, and names of the reference.
const PLACES = [["getting-started", 4], ["how-to/", 4], ["explanation/", 2], ["reference/generated/", -1]];
var Scorer = {
  objNameMatch: 12, objPartialMatch: 3, objPrio: {0: 0, 1: 0, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
  score: ([page, , , , score, , kind]) =>
    (kind === "title" ? 2 * score : score) + (PLACES.find(([begin]) => page.startsWith(begin))?.[1] ?? 0),
};

// Words of a longer question count too, and where no page has all of them, pages that have one are shown.
const words = (text) => ` ${splitQuery(text.toLowerCase()).join(" ")} `;
const typed = words(new URLSearchParams(location.search).get("q") ?? "");
const search = Search.performTermsSearch;
Search.performTermsSearch = (terms, excluded) => {
  const { indexentries, docnames, titles, filenames } = Search._index;
  const listed = Object.entries(indexentries)
    .filter(([entry]) => typed.includes(words(entry)))
    .flatMap(([entry, places]) => places.filter(([, , main]) => main).map(([at, id]) => {
      return [docnames[at], titles[at], id && `#${id}`, null, 50 + entry.length, filenames[at], SearchResultKind.index];
    }));
  const found = search(terms, excluded);
  return [...listed, ...(found.length ? found : [...terms].flatMap((term) => search(new Set([term]), excluded)))];
};
