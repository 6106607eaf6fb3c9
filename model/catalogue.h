// The models that are served by a short name. model/catalogue.json is the one list; it also tells scripts/fetch_model
// where each file comes from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sysone {

struct CatalogueModel {
  std::string name;  // what users type and clients call it
  std::string file;  // in the models cache
  int64_t bytes = 0;
  std::string sha256;
  std::string description, license;
  std::string release_date;  // of the weights, YYYY-MM-DD
  bool is_default = false;   // exactly one model is
  bool operator==(const CatalogueModel&) const = default;
};

// All of them, in the file's order. A mistake in the built-in list aborts.
std::vector<CatalogueModel> ReadCatalogue();
std::optional<CatalogueModel> FindInCatalogue(std::string_view name);
CatalogueModel DefaultModel();

// The text of catalogue.json as it was at build time.
const char* CatalogueJson();

}  // namespace sysone
