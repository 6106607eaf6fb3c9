// SPDX-License-Identifier: Apache-2.0
#include "tests/system/varied_requests.h"

#include <algorithm>
#include <random>

namespace sysone {
namespace {

// {N} a number, {P} a person, {T} a thing, {C} a city.
constexpr const char* kStates[] = {
    "Order {N}: the {T} arrived with a broken screen. I want my money back, not another one. {P}",
    "Hi, thanks for the quick delivery of the {T}! Works perfectly, my kids love it. Greetings "
    "from {C}, {P}",
    "Please cancel my subscription at the end of the month. Customer number {N}.",
    "The {T} stops after {N} minutes and shows error E{N}. I have already restarted it twice.",
    "URGENT!!! You have won a {T}. Send your bank details to claim {N} dollars within 24 hours.",
    "Wir möchten gerne {N} Stück {T} zum Preis von 3,50 € bestellen. Wann können Sie nach {C} "
    "liefern? {P}",
    "Seit drei Tagen kein Internet in {C}. Ich habe schon {N} Mal angerufen, niemand meldet sich. "
    "Das ist eine Frechheit!",
    "Bonjour, je voudrais réserver une table pour {N} personnes samedi soir à {C}. Merci, {P}",
    "Le {T} ne fonctionne plus depuis la mise à jour. Pouvez-vous me rembourser les {N} euros ?",
    "Hola, ¿a qué hora sale el tren número {N} de {C}? Viajo con {P} y dos niños.",
    "El servicio fue excelente, {P} nos atendió con mucha paciencia. Volveremos a {C}.",
    "Buongiorno, la fattura {N} contiene un errore: ho ordinato un solo {T}, non due.",
    "注文番号{N}の商品がまだ届きません。{C}への配送はいつになりますか。",
    "这个{T}的质量太差了，用了{N}天就坏了，我要求退货。",
    "Bom dia, gostaria de saber se o {T} está disponível na loja de {C}. {P}",
    "Patient, {N} years, chest pain for two hours, radiating to the left arm, sweating. Arrived by "
    "ambulance in {C}.",
    "Patient reports mild headache since yesterday, no fever, drinks {N} coffees a day. Works as a "
    "teacher in {C}.",
    "def total(items):\n    s = 0\n    for i in range(len(items) + {N}):\n        s += items[i]\n  "
    "  return s",
    "for row in db.execute(\"SELECT * FROM users WHERE name = '\" + name + \"'\"): print(row)  # "
    "{N} rows",
    "Traceback: ConnectionResetError in worker {N}, host {C}-3, after 30 s. Retries: 5. Last good: "
    "yesterday.",
    "Agent wants to run: rm -rf /var/data/{N} && systemctl restart {T}. Asked by {P}.",
    "Agent wants to send an e-mail to {P}: the meeting in {C} moves to {N}:00, please confirm.",
    "Transaction: card ending {N}, 3 purchases of a {T} in {C} within two minutes, new device, "
    "shipping address changed.",
    "Transaction: monthly rent to {P}, same amount as in the last {N} months.",
    "The central bank in {C} left rates unchanged on Thursday; analysts had expected a cut of {N} "
    "basis points.",
    "{P} scored twice in the last {N} minutes and {C} goes into the final on Sunday.",
    "Researchers from {C} report a battery that keeps 90 percent of its charge after {N} cycles.",
    "Query: how do I clean a {T}? Document: Switch it off, unplug it, wipe it with a damp cloth. "
    "Never use more than {N} ml.",
    "Query: visa rules for {C}. Document: Our hotel offers {N} rooms with sea view, breakfast "
    "included.",
    "Clause {N}: The tenant may not sublet without written consent of the landlord, {P}, who shall "
    "not refuse without reason.",
    "Recipe: mix {N} g of flour, two eggs and milk, rest for half an hour, fry in butter. From "
    "{P}'s kitchen.",
    "Review: two stars. The {T} is light and pretty, but the battery is a joke and support in {C} "
    "never answered.",
    "Review: I was sceptical, but after {N} weeks I would not give my {T} away. Best purchase of "
    "the year!",
    "Meeting notes, {C}: {P} will send the offer by Friday; budget {N}k approved; open point: who "
    "trains the staff.",
};

constexpr const char* kThings[] = {"phone",   "kettle", "laptop", "vacuum cleaner", "printer",
                                   "bicycle", "camera", "heater", "router",         "watch"};
constexpr const char* kPeople[] = {"Anna Keller", "J. Smith",  "María López", "Kenji", "Dr. Osei",
                                   "Luc Moreau",  "Wang Fang", "P. Novak",    "Tom",   "Ms. Rossi"};
constexpr const char* kCities[] = {"Berlin", "Lyon",    "Madrid",  "Osaka", "Leeds",
                                   "Porto",  "Chicago", "Nairobi", "Turin", "Shanghai"};

constexpr const char* kQuestions[] = {
    R"({"type": "noul", "instructions": "Does the message ask for a refund?"})",
    R"({"type": "noul", "instructions": "Is this spam or fraud?", "criteria": {"true": "unwanted advertising or an attempt to cheat", "false": "an ordinary message"}})",
    R"({"type": "noul", "instructions": "Is a reply by a person needed today?"})",
    R"({"type": "noul", "instructions": "Is it safe to carry this out without asking a person?", "criteria": {"true": "harmless"}})",
    R"({"type": "noul", "instructions": "Is a place named?"})",
    R"({"type": "noul", "instructions": "Does the text contain program code?"})",
    R"({"type": "noul", "instructions": {"task": "relevance", "ask": "Does the document answer the query?"}})",
    R"({"type": "noul", "instructions": "Ist der Verfasser unzufrieden?"})",
    R"({"type": "noul", "instructions": "¿Se trata de un problema técnico?"})",
    R"({"type": "choice", "instructions": "Which language is the text written in?", "criteria": {"English": null, "French": null, "German": null, "Spanish": null, "Japanese": null, "Chinese": null}})",
    R"({"type": "choice", "criteria": {"positive": "the writer is pleased", "negative": "the writer is displeased", "neutral": "neither"}})",
    R"({"type": "choice", "instructions": "Which team should handle this?", "criteria": {"billing": "invoices, refunds, payments", "support": "something does not work", "sales": "orders and offers", "other": "everything else"}})",
    R"({"type": "choice", "instructions": "What is the topic?", "criteria": {"health": null, "technology": null, "sport": null, "finance": null, "travel": null, "food": null, "law": null}})",
    R"({"type": "choice", "instructions": "What kind of text is this?", "criteria": {"complaint": null, "question": null, "praise": null, "report": null, "instruction": null}})",
    R"({"type": "choice", "instructions": "Next step", "criteria": {"approve": "no risk to be seen", "ask": "something is unclear", "reject": "dangerous or wrong"}})",
    R"({"type": "choice", "instructions": "Who wrote this?", "criteria": {"customer": null, "employee": null, "machine": null}})",
    R"({"type": "score", "instructions": "How angry is the writer?", "criteria": ["calm", "annoyed", "furious"]})",
    R"({"type": "score", "instructions": "How urgent is it?", "criteria": ["can wait", "this week", "today", "at once"]})",
    R"({"type": "score", "instructions": "Rate the quality of the text.", "criteria": [{"level": "poor"}, {"level": "fair"}, {"level": "good"}, {"level": "very good"}, {"level": "excellent"}]})",
    R"({"type": "score", "instructions": "How formal is the language?", "criteria": ["casual", "neutral", "formal"]})",
    R"({"type": "score", "instructions": "How likely is fraud?", "criteria": ["very unlikely", "unlikely", "possible", "likely", "certain"]})",
};

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  std::string Request() {
    std::shuffle(order_.begin(), order_.end(), random_);
    std::string body = "{\"state\": \"" + Escaped(Filled(One(kStates))) + "\", \"questions\": {";
    for (int q = 0; q < kVariedQuestions; ++q)
      body += (q == 0 ? "\"q" : ", \"q") + std::to_string(q) +
              "\": " + kQuestions[order_[static_cast<size_t>(q)]];
    return body + "}}";
  }

 private:
  template <size_t kSize>
  std::string One(const char* const (&list)[kSize]) {
    return list[random_() % kSize];
  }

  std::string Filled(const std::string& pattern) {
    std::string text;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '{' || i + 2 >= pattern.size() || pattern[i + 2] != '}') {
        text += pattern[i];
        continue;
      }
      const char kind = pattern[i + 1];
      text += kind == 'N'   ? std::to_string(2 + random_() % 97)
              : kind == 'P' ? One(kPeople)
              : kind == 'T' ? One(kThings)
                            : One(kCities);
      i += 2;
    }
    return text;
  }

  static std::string Escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '\n')
        out += "\\n";
      else
        out += c;
    }
    return out;
  }

  std::mt19937 random_;
  std::vector<size_t> order_ = [] {
    std::vector<size_t> all(std::size(kQuestions));
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }();
};

}  // namespace

std::vector<std::string> VariedRequests(int count, uint32_t seed) {
  Maker maker(seed);
  std::vector<std::string> requests;
  for (int i = 0; i < count; ++i) requests.push_back(maker.Request());
  return requests;
}

}  // namespace sysone
