#include "spec/yaml_source.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "base/error.h"
#include "spec/config_scalar.h"

namespace megatoken {
namespace {

constexpr int kMostNodes = 100000;  // after aliases are written out
constexpr int kMostDepth = 64;

class Converter {
 public:
  explicit Converter(const std::string& source) : source_(source) {}

  YamlValue convert(const YAML::Node& node, int depth) {
    const int line = node.Mark().line + 1;
    if (++nodes_ > kMostNodes || depth > kMostDepth)
      throw ConfigError("{}:{}: nested too deeply or too large", source_, line);
    YamlValue value;
    value.line = line;
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        value.json = scalar(node, line);
        break;
      case YAML::NodeType::Sequence:
        value.json = nlohmann::ordered_json::array();
        for (const YAML::Node& item : node) value.json.push_back(convert(item, depth + 1).json);
        break;
      case YAML::NodeType::Map:
        convert_map(node, depth, value);
        break;
      default:
        value.json = nullptr;
    }
    return value;
  }

 private:
  nlohmann::ordered_json scalar(const YAML::Node& node, int line) {
    const std::string& tag = node.Tag();
    if (!is_utf8(node.Scalar())) throw ConfigError("{}:{}: not valid UTF-8", source_, line);
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return node.Scalar();  // quoted
    bool plain = tag.empty() || tag == "?";
    for (const char* type : {"null", "bool", "int", "float"}) plain |= tag == std::string("tag:yaml.org,2002:") + type;
    if (!plain) throw ConfigError("{}:{}: the tag {} is not supported", source_, line, one_line(tag));
    return resolve_scalar(node.Scalar());
  }

  void convert_map(const YAML::Node& node, int depth, YamlValue& value) {
    value.is_map = true;
    value.json = nlohmann::ordered_json::object();
    std::set<std::string> seen;
    for (const auto& item : node) {
      const int line = item.first.Mark().line + 1;
      if (!item.first.IsScalar()) throw ConfigError("{}:{}: a key must be a word", source_, line);
      const std::string key = item.first.Scalar();
      if (!is_utf8(key)) throw ConfigError("{}:{}: not valid UTF-8", source_, line);
      if (key == "<<") throw ConfigError("{}:{}: merge keys (<<) are not supported", source_, line);
      if (!seen.insert(key).second) throw ConfigError("{}:{}: the key {} is given twice", source_, line, one_line(key));
      value.members.push_back({key, line, convert(item.second, depth + 1)});
      value.json[key] = value.members.back().value.json;
    }
  }

  const std::string& source_;
  int nodes_ = 0;
};

}  // namespace

YamlValue parse_yaml(const std::string& text, const std::string& source) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) throw ConfigError("{}: holds {} YAML documents, expected one", source, documents.size());
    if (documents.empty()) return YamlValue{};
    return Converter(source).convert(documents.front(), 0);
  } catch (const YAML::Exception& problem) {
    throw ConfigError("{}:{}: not valid YAML: {}", source, problem.mark.line + 1, one_line(problem.msg));
  }
}

}  // namespace megatoken
