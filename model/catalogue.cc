// SPDX-License-Identifier: Apache-2.0
#include "model/catalogue.h"

#include "base/json.h"

namespace sysone {
namespace {

std::string Text(const Json& entry, const char* field) {
  const Json* const value = entry.Find(field);
  SYSONE_CHECK(value != nullptr && value->is_string() && !value->string().empty(),
               "catalogue.json: \"%s\" is missing in %s", field, entry.Dump().c_str());
  return value->string();
}

}  // namespace

std::vector<CatalogueModel> ReadCatalogue() {
  const auto json = Json::Parse(CatalogueJson());
  SYSONE_CHECK(json.ok() && json->is_array(), "catalogue.json is no JSON array");
  std::vector<CatalogueModel> models;
  for (const Json& entry : json->items()) {
    CatalogueModel model;
    model.name = Text(entry, "name");
    model.file = Text(entry, "file");
    model.sha256 = Text(entry, "sha256");
    model.description = Text(entry, "description");
    model.license = Text(entry, "license");
    model.release_date = Text(entry, "release_date");
    const Json* const bytes = entry.Find("bytes");
    SYSONE_CHECK(bytes != nullptr && bytes->AsInt64().value_or(0) > 0,
                 "catalogue.json: no \"bytes\" for %s", model.name.c_str());
    model.bytes = *bytes->AsInt64();
    const Json* const is_default = entry.Find("default");
    model.is_default = is_default != nullptr && is_default->is_bool() && is_default->boolean();
    models.push_back(model);
  }
  return models;
}

std::optional<CatalogueModel> FindInCatalogue(std::string_view name) {
  for (CatalogueModel& model : ReadCatalogue())
    if (model.name == name) return std::move(model);
  return std::nullopt;
}

CatalogueModel DefaultModel() {
  for (CatalogueModel& model : ReadCatalogue())
    if (model.is_default) return std::move(model);
  SYSONE_CHECK(false, "catalogue.json has no default model");
  return {};
}

}  // namespace sysone
